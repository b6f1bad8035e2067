"""The Triton kernel of the race against its definition in torch.

Triton reads when it is imported whether it interprets kernels, so this file runs itself
in a process of its own, once for all cases.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from oracles import run_alone
from race_cases import CASES as ALL_CASES
from race_cases import compare, run

from torch_geometric_gsl.ops.relax import Arrivals

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec('triton') is None, reason='needs Triton (the extra of the tests)'
    ),
]


# Triton has no mixture.
CASES = [case for case in ALL_CASES if case.response != 'mixture']


def _run_kernel(path, device):
    """Run the kernel for each case, with the seeds of the CPU."""
    from torch_geometric_gsl.ops._triton import race_kernel as module

    calls = []

    def kernel(*args):
        calls.append(module.race_kernel(*args))

    found = {}
    for case in CASES:
        module._TILE = case.tile
        calls.clear()
        found[str(case)] = tuple(run(case, kernel, device))
        assert len(calls) >= int(case.n > 0), f'no kernel ran for {case}'
    torch.save(found, path)


@pytest.fixture(scope='module')
def found(tmp_path_factory):
    """Return what the kernel finds in each case."""
    path = str(tmp_path_factory.mktemp('kernel') / 'found.pt')
    _run_alone(path, 'cpu', TRITON_INTERPRET='1')
    return dict(torch.load(path))


def _run_alone(path, device, **environment):
    folder = Path(__file__).parents[1]  # Of the oracles.
    roots = str(folder), str(folder.parent)
    run_alone(__file__, path, device, PYTHONPATH=os.pathsep.join(roots), **environment)


@pytest.mark.parametrize('case', CASES, ids=str)
def test_equals_the_definition(case, found):
    compare(case, Arrivals(*found[str(case)]), run(case))


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_equals_the_definition_on_a_gpu(tmp_path):
    path = tmp_path / 'found.pt'
    _run_alone(str(path), 'cuda', TRITON_INTERPRET='0')
    found = torch.load(path)
    for case in CASES:
        compare(case, Arrivals(*found[str(case)]), run(case))


if __name__ == '__main__':
    _run_kernel(*sys.argv[1:])
