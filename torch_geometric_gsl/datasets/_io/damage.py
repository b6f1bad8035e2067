"""Distinguish a damaged file from a machine with too little memory."""

from __future__ import annotations

import pickle
import re
import struct
import zipfile
import zlib

# Readers of pickles and archives raise these on a damaged file: RuntimeError where it
# seems to be encrypted (the documentation of pickle leaves the list open).
ERRORS = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, ImportError),
    *(LookupError, RuntimeError, TypeError, ValueError, struct.error, zlib.error),
    *(pickle.UnpicklingError, zipfile.BadZipFile),
)


def check_memory(error: Exception, size: int) -> None:
    """Raise :class:`MemoryError` if torch has no memory for a file of so many bytes.

    A file that asks for more than it can hold is damaged.
    """
    found = re.search(r'tried to allocate (\d+) bytes', str(error))
    if isinstance(error, RuntimeError) and found and int(found[1]) <= size:
        raise MemoryError(str(error).splitlines()[0]) from error
