from __future__ import annotations

from collections.abc import Iterator

#: Bytes of temporary memory that a chunked operation may use (32 MiB). Blocks
#: that fit into a processor's cache are also the fastest.
MEMORY_BUDGET = 32 * 2**20


def rows_per_block(bytes_per_row: int, budget: int = MEMORY_BUDGET) -> int:
    r"""Turns a memory budget into a number of rows, at least one.

    Args:
        bytes_per_row (int): What one row needs, in bytes.
        budget (int, optional): The budget in bytes. (default: :obj:`2**25`)

    Example:
        >>> rows_per_block(bytes_per_row=1024, budget=10_000)
        9
    """
    return max(1, budget // max(1, bytes_per_row))


def row_blocks(
    num_rows: int, bytes_per_row: int, budget: int = MEMORY_BUDGET
) -> Iterator[slice]:
    r"""Yields slices that cover :obj:`num_rows` rows within a memory budget."""
    step = rows_per_block(bytes_per_row, budget)
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))
