"""Readers and writers of files; none executes, or believes, what a file holds."""
