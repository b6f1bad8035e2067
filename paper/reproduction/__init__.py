"""Reproduce the paper's tables and figures, with runs that resume and share work."""
