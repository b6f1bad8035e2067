"""Sums with a certified error; their door is :mod:`certified_sum`."""
