"""Tell a damaged file from a machine with too little memory, and say what is wrong."""

from __future__ import annotations

import pickle
import re
import struct
import zipfile
import zlib
from pathlib import Path

# Readers of pickles and archives raise these on a damaged file: RuntimeError where it
# seems to be encrypted (the documentation of pickle leaves the list open).
ERRORS = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, ImportError),
    *(LookupError, RuntimeError, TypeError, ValueError, struct.error, zlib.error),
    *(pickle.UnpicklingError, zipfile.BadZipFile),
)


def check_memory(error: Exception, size: int) -> None:
    """Raise :class:`MemoryError` if an error says that torch has no memory for a file.

    A file that asks for more than it can hold is damaged.
    """
    found = re.search(r'tried to allocate (\d+) bytes', str(error))
    if isinstance(error, RuntimeError) and found and int(found[1]) <= size:
        raise MemoryError(str(error).splitlines()[0]) from error


def refused_global(error: Exception) -> str | None:
    """Return what torch refused to load, without its advice to trust the file."""
    found = re.search(r'GLOBAL (\S{1,100})', str(error))
    return found[1] if found else None


def damaged(path: Path, reason: object) -> OSError:
    """Return the error of a damaged raw file."""
    return OSError(f"'{path}' is damaged ({reason}): delete it to download it again")
