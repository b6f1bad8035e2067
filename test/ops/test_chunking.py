from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, row_blocks, rows_per_block


@pytest.mark.parametrize(
    ('bytes_per_row', 'budget', 'rows'),
    [(10, 100, 10), (10, 109, 10), (11, 100, 9), (101, 100, 1), (0, 7, 7), (5, 0, 1)],
)
def test_rows_per_block(bytes_per_row: int, budget: int, rows: int) -> None:
    assert rows_per_block(bytes_per_row, budget) == rows


def test_default_budget() -> None:
    assert MEMORY_BUDGET == 2**25
    assert rows_per_block(2**20) == 32
    assert [len(range(100)[rows]) for rows in row_blocks(100, 2**20)] == [32, 32, 32, 4]


@given(st.integers(0, 200), st.integers(0, 50), st.integers(0, 500))
def test_blocks_cover_all_rows_in_order_within_the_budget(
    num_rows: int, bytes_per_row: int, budget: int
) -> None:
    covered = []
    for rows in row_blocks(num_rows, bytes_per_row, budget):
        block = list(range(num_rows))[rows]
        assert len(block) == rows.stop - rows.start > 0
        assert len(block) == 1 or len(block) * bytes_per_row <= budget
        covered += block
    assert covered == list(range(num_rows))
