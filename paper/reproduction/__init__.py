"""Reproduce the paper's tables and figures, by runs that can be killed and shared."""
