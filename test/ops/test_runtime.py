import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_geometric_gsl.ops import runtime as module
from torch_geometric_gsl.ops.noise import STEP, draw_uniform, race_states
from torch_geometric_gsl.ops.runtime import (
    MIN_NUMEL,
    cache_budget,
    find_compiler,
    full_dtype,
    full_precision,
    has_triton,
    maybe_compile,
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


def double(x):
    return 2 * x


@pytest.fixture
def stub(monkeypatch):
    """Replace the compiler by a function that returns what is given to it."""
    # What a test makes of `double` is gone with it.
    monkeypatch.setattr(module, '_compile', module.cache(module._compile.__wrapped__))

    def replace(quick):
        made = []
        monkeypatch.setattr(module, 'find_compiler', lambda: 'c++')

        def compiled(function, dynamic):
            made.append((function, dynamic))
            return quick

        monkeypatch.setattr(torch, 'compile', compiled)
        return made

    return replace


def test_large_inputs_on_a_cpu_are_compiled_once(stub):
    made = stub(lambda x: 2 * x + 1)
    assert maybe_compile(double, MIN_NUMEL - 1, CPU) is double
    assert maybe_compile(double, MIN_NUMEL, torch.device('cuda')) is double
    assert maybe_compile(double, MIN_NUMEL, torch.device('meta')) is double
    assert not made
    quick = maybe_compile(double, MIN_NUMEL, CPU)
    assert quick is maybe_compile(double, 2 * MIN_NUMEL, CPU)
    assert made == [(double, None)]
    maybe_compile(double, MIN_NUMEL, CPU, dynamic=True)
    assert made[1:] == [(double, True)]
    assert float(quick(torch.tensor(3.0))) == 7  # The compiled form was called.


@pytest.mark.parametrize('reason', ['compiler', 'variable', 'config'])
def test_nothing_is_compiled_where_it_is_off(stub, reason, monkeypatch):
    made = stub(double)
    if reason == 'compiler':
        monkeypatch.setattr(module, 'find_compiler', lambda: None)
    elif reason == 'variable':
        monkeypatch.setenv('TORCH_COMPILE_DISABLE', '1')
    with torch._dynamo.config.patch(disable=reason == 'config'):
        assert maybe_compile(double, MIN_NUMEL, CPU) is double
    assert not made


@pytest.mark.parametrize('present', ['g++', 'clang++', 'special', None])
def test_find_compiler(monkeypatch, present):
    uncached = find_compiler.__wrapped__
    monkeypatch.setattr(
        module.shutil, 'which', lambda name: name if name == present else None
    )
    monkeypatch.setenv('CXX', 'special')
    assert uncached() == present
    monkeypatch.delenv('CXX')
    assert uncached() == (None if present == 'special' else present)


def test_a_failure_warns_once_and_runs_eagerly(stub):
    calls = []

    def broken(x):
        calls.append(x)
        raise torch._dynamo.exc.InternalTorchDynamoError('no headers\nand more')

    stub(broken)
    quick, x = maybe_compile(double, MIN_NUMEL, CPU), torch.ones(2)
    text = r'^double could not be compiled and runs eagerly: no headers$'
    with pytest.warns(RuntimeWarning, match=text) as seen:
        assert quick(x).tolist() == [2, 2]
    assert len(seen) == 1
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert quick(x).tolist() == [2, 2]
    assert len(calls) == 1


@pytest.mark.skipif(find_compiler() is None, reason='needs a C++ compiler')
def test_compiled_functions_equal_the_eager_ones():
    n, q = 600, 500
    assert n * q > MIN_NUMEL
    state, place = race_states(torch.tensor(3), 5, n), torch.arange(1, q + 1)
    quick = maybe_compile(draw_uniform, n * q, CPU, dynamic=True)
    assert quick is not draw_uniform
    columns = torch.stack([2 * place, 2 * place + 1]).unsqueeze(1) * STEP
    args = state, columns, torch.full((n, 1), 1000), torch.float32
    for found, expected in zip(quick(*args), draw_uniform(*args), strict=True):
        exact = torch.equal if found.dtype == torch.long else torch.allclose
        assert exact(found, expected)


@pytest.mark.parametrize(
    ('device', 'installed', 'capability', 'expected'),
    [
        ('cpu', True, (9, 0), False),
        ('cuda', False, (9, 0), False),
        ('cuda', True, (7, 5), False),
        ('cuda', True, (8, 0), True),
    ],
)
def test_has_triton(monkeypatch, device, installed, capability, expected):
    monkeypatch.setattr(module, 'find_spec', lambda _: installed or None)
    monkeypatch.setattr(torch.cuda, 'get_device_capability', lambda _: capability)
    assert has_triton(torch.device(device)) is expected


@pytest.mark.parametrize(
    'dtype', [torch.half, torch.bfloat16, torch.float, torch.double]
)
def test_half_precision_is_left(dtype):
    x, is_half = torch.tensor([0.1, -3.0], dtype=dtype), dtype.itemsize == 2
    assert full_dtype(dtype) == (torch.float32 if is_half else dtype)
    assert torch.equal(full_precision(x), x.float() if is_half else x)
    assert is_half or full_precision(x) is x
