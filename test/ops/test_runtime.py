import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_geometric_gsl.ops.runtime import (
    cache_budget,
    full_dtype,
    full_precision,
    row_blocks,
)

CPU = torch.device('cpu')


@given(st.integers(0, 200), st.integers(0, 50), st.integers(0, 500))
def test_blocks_cover_all_rows_within_the_budget(num_rows, bytes_per_row, budget):
    covered = []
    for rows in row_blocks(num_rows, bytes_per_row, budget):
        block = list(range(num_rows))[rows]
        assert len(block) == rows.stop - rows.start > 0
        assert len(block) == 1 or len(block) * bytes_per_row <= budget
        covered += block
    assert covered == list(range(num_rows))


def test_a_cpu_takes_blocks_that_fit_its_cache():
    assert cache_budget(2**25, CPU) == 2**21
    assert cache_budget(2**10, CPU) == 2**10
    assert cache_budget(2**25, torch.device('cuda')) == 2**25


@pytest.mark.parametrize(
    'dtype', [torch.half, torch.bfloat16, torch.float, torch.double]
)
def test_half_precision_is_left(dtype):
    x, is_half = torch.tensor([0.1, -3.0], dtype=dtype), dtype.itemsize == 2
    assert full_dtype(dtype) == (torch.float32 if is_half else dtype)
    assert torch.equal(full_precision(x), x.float() if is_half else x)
    assert is_half or full_precision(x) is x
