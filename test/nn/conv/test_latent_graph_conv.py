from __future__ import annotations

import pytest
import torch
from oracles import seeded, to_matrix

from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv

IN, OUT, TAU, SCALE = 5, 4, 0.4, 1.5


def make(k: int, memory_budget: int = 2**25) -> LatentGraphConv:
    torch.manual_seed(5)
    conv = LatentGraphConv(
        IN, OUT, k=k, tau=TAU, scale=SCALE, memory_budget=memory_budget
    )
    torch.nn.init.normal_(conv.bias)
    return conv


def test_repr() -> None:
    assert str(LatentGraphConv(16, 32)) == (
        'LatentGraphConv(16, 32, similarity=NeuralGaussianSimilarity(32, '
        'c_scale=0.1), k=5, tau=0.25)'
    )
    assert str(LatentGraphConv(-1, 8, 'linear', k=2, tau=1.0)) == (
        'LatentGraphConv(-1, 8, similarity=LinearSimilarity(8), k=2, tau=1.0)'
    )
    with pytest.raises(ValueError, match=r"'out_channels' must be at least 1 \(got 0"):
        LatentGraphConv(4, 0)


@pytest.mark.parametrize('budget', [2**25, 1])
@pytest.mark.parametrize('training', [True, False])
def test_batch(training: bool, budget: int) -> None:
    conv = make(3, budget).train(training)
    x, batch = torch.randn(9, IN), torch.tensor([0] * 4 + [2] * 5)
    out = conv(x, batch=batch, generator=seeded(2))
    generator = seeded(2)
    parts = [conv(part, generator=generator) for part in (x[:4], x[4:])]
    torch.testing.assert_close(out, torch.cat(parts))
    graph = conv.graph(x, batch=batch)
    assert torch.equal(batch[graph.edge_index[0]], batch[graph.edge_index[1]])


@pytest.mark.parametrize('training', [True, False])
def test_given_candidates(training: bool) -> None:
    conv, x = make(2).train(training), torch.randn(7, IN)
    given = torch.tensor([[1, 2, 4, 4, 0], [0, 0, 0, 3, 3]])
    h, rest = conv.lin(x), conv.lin_root(x) + conv.bias
    if training:
        weight = to_matrix(*conv.graph(x, given, generator=seeded(1)), 7, 7)
        assert set(weight.nonzero()[:, 0].tolist()) == {0, 3}
    else:
        score = SCALE * conv.sampler.similarity(h) / TAU
        allowed = torch.zeros(7, 7, dtype=torch.bool)
        allowed[given[1], given[0]] = True
        weight = score.masked_fill(~allowed, -torch.inf).softmax(1).nan_to_num()
    out = conv(x, given, generator=seeded(1))
    torch.testing.assert_close(out, weight @ h + rest)
