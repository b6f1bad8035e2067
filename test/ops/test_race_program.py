"""The device side of the race: its random numbers, and that it compiles."""

from importlib.util import find_spec

import pytest
import torch
from oracles import run_alone, seeded

from torch_geometric_gsl.ops import noise

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec('triton') is None, reason='needs Triton (the extra of the tests)'
    ),
]

# A file of its own: Triton reads the source of its kernels.
DRAW = """
import sys
import torch
import triton
import triton.language as tl
from torch_geometric_gsl.ops._triton.race_program import (
    random_words,
    uniform,
)

@triton.jit
def draw(states, words, lower, SIZE: tl.constexpr):
    place = tl.arange(0, SIZE)
    word = random_words(tl.load(states + place).to(tl.uint64))
    tl.store(words + place, word.to(tl.int64))
    tl.store(lower + place, uniform(word))

states = torch.load(sys.argv[1])
lower = torch.empty(states.shape)
found = torch.empty_like(states), lower
draw[(1,)](states, *found, states.numel())
torch.save(found, sys.argv[1])
"""


def test_random_numbers_equal_those_of_torch(tmp_path):
    # Bit by bit, over all 64 of them.
    low, high = torch.iinfo(torch.long).min, torch.iinfo(torch.long).max
    states = torch.randint(low, high, (1024,), generator=seeded())
    states[:4] = torch.tensor([0, -1, low, high])
    path, program = tmp_path / 'numbers.pt', tmp_path / 'draw.py'
    torch.save(states, path)
    program.write_text(DRAW, encoding='utf-8')
    run_alone(str(program), str(path), TRITON_INTERPRET='1')
    words, lower = torch.load(path)
    assert torch.equal(words, noise.random_words(states))
    assert torch.equal(lower, noise.uniform(words, torch.float))


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from torch_geometric_gsl.ops._triton.race_kernel import _tile_sizes
from torch_geometric_gsl.ops._triton.race_program import run_races

FLOATS = 'dst src b c scale bound total out_noise out_horizon out_clock'.split()
LONGS = 'excluded start listed count head member offset state out_source out_found'
POINTERS = {
    **dict.fromkeys(FLOATS, '*fp32'),
    **dict.fromkeys(LONGS.split(), '*i64'),
    'share': '*i32',
}
FLAT, KINDS = ('share', 'head', 'member', 'offset'), ('start', 'listed')

def build(arch, response, absent, sizes, comparison='dot'):
    options = _tile_sizes(*sizes)
    warps = options.pop('num_warps')
    constants = {'RESPONSE': response, 'COMPARISON': comparison, **options}
    constants |= dict.fromkeys(absent)
    types = dict.fromkeys(run_races.arg_names, 'i32') | POINTERS
    types |= dict.fromkeys(constants, 'constexpr')
    kernel = triton.compile(
        ASTSource(run_races, types, constants),
        target=GPUTarget('cuda', arch, 32),
        options={'num_warps': warps, 'enable_fp_fusion': True},
    )
    assert kernel.asm['cubin']

build(80, 'gaussian', FLAT, (22, 64, 4))
build(90, 'heat_kernel', ('b', *KINDS), (22, 33, 5), 'squared_distance')
build(90, 'negative', ('b', 'c', *KINDS), (22, 33, 5), 'squared_distance')
build(90, 'difference', ('b', 'c', 'start', 'listed', *FLAT), (1, 1, 1))
build(90, 'identity', ('b', 'c', 'excluded', 'head', *KINDS), (200, 500, 40))
"""


def test_compiles_without_a_gpu(tmp_path):
    # The interpreter accepts more than the compiler, to which types matter.
    run_alone('-c', COMPILE, TRITON_INTERPRET='0', TRITON_CACHE_DIR=str(tmp_path))
