from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_geometric_gsl.ops import compiled as module
from torch_geometric_gsl.ops.compiled import MIN_NUMEL, has_compiler
from torch_geometric_gsl.ops.neighbours import gathered_dots
from torch_geometric_gsl.ops.noise import states
from torch_geometric_gsl.ops.race import propose

CPU = torch.device('cpu')


def double(x: Tensor) -> Tensor:
    return 2 * x


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # What a test makes of `double` is gone with it.
    monkeypatch.setattr(module, '_compile', module.cache(module._compile.__wrapped__))
    has_compiler.cache_clear()
    yield
    has_compiler.cache_clear()


def stub(monkeypatch: pytest.MonkeyPatch, quick: Callable[..., Any]) -> list[Any]:
    made: list[Any] = []

    def compile_(function: Callable[..., Any]) -> Callable[..., Any]:
        made.append(function)
        return quick

    monkeypatch.setattr(module, 'has_compiler', lambda: True)
    monkeypatch.setattr(torch, 'compile', compile_)
    return made


def test_large_inputs_on_a_cpu_are_compiled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = stub(monkeypatch, lambda x: 2 * x + 1)
    assert maybe_compile(double, MIN_NUMEL - 1, CPU) is double
    assert maybe_compile(double, MIN_NUMEL, torch.device('cuda')) is double
    assert maybe_compile(double, MIN_NUMEL, torch.device('meta')) is double
    assert not made
    quick = maybe_compile(double, MIN_NUMEL, CPU)
    assert quick is maybe_compile(double, 2 * MIN_NUMEL, CPU)
    assert made == [double]
    assert float(quick(torch.tensor(3.0))) == 7  # The compiled form was called.


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    made = stub(monkeypatch, double)
    monkeypatch.setattr(module, 'has_compiler', lambda: False)
    assert maybe_compile(double, MIN_NUMEL, CPU) is double
    assert not made


@pytest.mark.parametrize('present', ['g++', 'clang++', 'special', None])
def test_has_compiler(monkeypatch: pytest.MonkeyPatch, present: str | None) -> None:
    monkeypatch.setattr(module.shutil, 'which', lambda name: name == present or None)
    monkeypatch.setenv('CXX', 'special')
    assert has_compiler() is (present is not None)
    has_compiler.cache_clear()
    monkeypatch.delenv('CXX')
    assert has_compiler() is (present in ('g++', 'clang++'))


def test_a_failure_warns_once_and_runs_eagerly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def broken(x: Tensor) -> Tensor:
        calls.append(x)
        raise torch._dynamo.exc.InternalTorchDynamoError('no headers\nand more')

    stub(monkeypatch, broken)
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


def test_other_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(x: Tensor) -> Tensor:
        raise ValueError('of the input')

    stub(monkeypatch, wrong)
    with pytest.raises(ValueError, match='of the input'):
        maybe_compile(double, MIN_NUMEL, CPU)(torch.ones(2))


@pytest.mark.skipif(not has_compiler(), reason='needs a C++ compiler')
def test_compiled_functions_equal_the_eager_ones() -> None:
    n, q = 600, 500
    assert n * q > MIN_NUMEL
    row, column = states(torch.tensor(3), slice(5, 5 + n), 2 * q)
    quick = maybe_compile(propose, n * q, CPU)
    assert quick is not propose
    expected = propose(row, column, 1000, torch.float32)
    source, level, gap = quick(row, column, 1000, torch.float32)
    assert torch.equal(source, expected[0])
    assert torch.equal(level, expected[1])
    torch.testing.assert_close(gap, expected[2])

    dst, src = torch.randn(n, 6), torch.randn(1000, 6)
    dots = maybe_compile(gathered_dots, n * q, CPU)(dst, src, source)
    torch.testing.assert_close(dots, gathered_dots(dst, src, source))
