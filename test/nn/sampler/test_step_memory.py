"""The memory of a step: its largest tensor, and all that it makes."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_geometric_gsl import Budget
from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv


class MadeTensors(TorchDispatchMode):
    """Records the bytes of tensors that operations make: the largest, and all."""

    def __init__(self):
        super().__init__()
        self.largest = self.all = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        existing = {address(value) for value in tree_leaves((args, kwargs))}
        for value in tree_leaves(result):
            if address(value) not in existing | {None}:  # A view is not made.
                size = value.untyped_storage().nbytes()
                self.largest = max(self.largest, size)
                self.all += size
        return result


def address(value):
    """Return where the numbers of a tensor stand, or None if it is none."""
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return None
    return value.untyped_storage().data_ptr()


def made_bytes(conv, num_nodes, *args):
    x = torch.randn(num_nodes, 8, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(2)
    with MadeTensors() as made:
        conv(x, *args, generator=generator).square().sum().backward()
    return made


@pytest.mark.parametrize('similarity', ['neural_gaussian', 'heat_kernel'])
def test_the_largest_tensor_grows_linearly(similarity):
    proposals, channels, k, budget = 22, 64, 5, {'budget': Budget(memory=2**19)}
    conv = LatentGraphConv.paper(8, channels, similarity, method='race', **budget)
    small, large = (made_bytes(conv, n).largest for n in (2000, 4000))
    assert 0 < large <= 2.1 * small
    # Far less than one number for each channel of each proposal, or for each pair.
    assert large < 4 * 4000 * min(4000, k * proposals * channels) / 10
    # Nor one for each channel of each arrival.
    assert large < 4 * 4000 * k * 4 * channels / 10
    conv = LatentGraphConv(8, channels, method='dense', **budget)
    assert made_bytes(conv, 700).largest >= 4 * 700**2  # It would be seen.


@pytest.mark.parametrize('similarity', ['neural_gaussian', 'heat_kernel'])
@pytest.mark.parametrize('candidates', ['all', 'listed', 'many'])
def test_what_a_step_makes_grows_linearly(similarity, candidates):
    # Also where many blocks serve it, none of which may fill a gradient of all nodes.
    channels, made = 64, []
    budget = Budget(memory=2**18)
    conv = LatentGraphConv.paper(8, channels, similarity, budget=budget)
    for n in (1000, 2000):
        count, args = {'listed': 12, 'many': 100}.get(candidates, 0), []
        if count:  # Of each node; many of them race.
            target = torch.arange(n).repeat_interleave(count)
            source = (torch.arange(n * count) * 7) % n
            args = [torch.stack([source, target])]
        made.append(made_bytes(conv, n, *args))
    assert 0 < made[1].all < 2.1 * made[0].all
    assert made[1].largest < 2.1 * made[0].largest


@pytest.mark.parametrize('similarity', ['neural_gaussian', 'heat_kernel'])
def test_listed_candidates_keep_no_rows(similarity):
    n, count, channels, saved = 500, 50, 256, {}
    conv = LatentGraphConv(8, channels, similarity, k=1, budget=Budget(memory=2**18))
    target = torch.arange(n).repeat_interleave(count)
    edges = torch.stack([(torch.arange(n * count) * 7) % n, target])

    def pack(tensor):
        saved[address(tensor)] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        conv(torch.randn(n, 8), edges).sum().backward()
    num_bytes = sum(tensor.untyped_storage().nbytes() for tensor in saved.values())
    # A few numbers for each pair, not one for each channel of it.
    assert num_bytes < 4 * n * count * channels / 4


@pytest.mark.parametrize('method', ['race', 'dense', 'stream', 'pool'])
@pytest.mark.parametrize('training', [True, False])
def test_graphs_of_a_batch_do_not_add_up(training, method):
    conv = LatentGraphConv(8, 16, method=method, budget=Budget(memory=2**16)).train(
        training
    )
    batch = torch.arange(12).repeat_interleave(20)
    small, large = (made_bytes(conv, n, None, None, batch[:n]) for n in (120, 240))
    assert 0 < large.all < 2.1 * small.all
    assert 0 < large.largest < 2.1 * small.largest
