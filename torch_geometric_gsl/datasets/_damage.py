"""What readers raise on damaged files, and what tells of too little memory instead."""

from __future__ import annotations

import pickle
import re
import struct

# What an unpickler raises on a damaged file (its documentation leaves the list open).
ERRORS = (
    pickle.UnpicklingError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
)


def check_memory(error: Exception, size: int) -> None:
    """Raises :class:`MemoryError` if torch has no memory for a file of so many bytes.

    A file that asks for more than it can hold is damaged.
    """
    found = re.search(r'tried to allocate (\d+) bytes', str(error))
    if isinstance(error, RuntimeError) and found and int(found[1]) <= size:
        raise MemoryError(str(error).splitlines()[0]) from error
