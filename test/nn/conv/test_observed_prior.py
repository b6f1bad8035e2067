"""A graph that is given, mixed with the one that is learned."""

import pytest
import torch
from oracles import seeded
from sampling import normal

from torch_geometric_gsl import LatentGraphConv

N = 8
# Twice the same edge counts once; node 7 has none.
EDGES = torch.tensor([[1, 2, 2, 0, 5, 6], [0, 0, 0, 3, 4, 4]])


def layer(**kwargs):
    torch.manual_seed(5)
    conv = LatentGraphConv(6, 4, k=2, observed='prior', root_weight=False, **kwargs)
    return conv.double()


def observed(share):
    weight = torch.zeros(N, N).double()
    for source, target in set(map(tuple, EDGES.T.tolist())):
        weight[target, source] = 1
    size = weight.sum(dim=1, keepdim=True)
    return share * weight / size.clamp(min=1), 1 - share * (size > 0)


@pytest.mark.parametrize('training', [True, False])
def test_both_graphs_are_mixed(training):
    x, conv = normal(N, 6), layer().train(training)
    with torch.no_grad():
        conv.prior.logit.fill_(-1.0)
    own = torch.zeros(N, N).double()
    learned = conv.graph(x, generator=seeded(1))
    own[learned.edge_index[1], learned.edge_index[0]] = learned.edge_weight.detach()
    prior, kept = observed(torch.tensor(-1.0).sigmoid().double())
    graph = conv.graph(x, EDGES, generator=seeded(1))
    found = torch.zeros(N, N).double()
    found[graph.edge_index[1], graph.edge_index[0]] = graph.edge_weight.detach()
    torch.testing.assert_close(found, prior + kept * own)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(N).double())
    h = x @ conv.lin.weight.T
    alone = conv(x, generator=seeded(1))
    expected = prior @ h + kept * alone
    torch.testing.assert_close(conv(x, EDGES, generator=seeded(1)), expected)


def test_all_nodes_stay_candidates():
    x, conv = normal(N, 6), layer()
    assert layer(loop=True).eval().graph(x, EDGES).edge_index.size(1) == N * N
    conv(x, EDGES).sum().backward()
    assert float(conv.prior.logit.grad) != 0
    with torch.no_grad():
        conv.prior.logit.fill_(3.0)
    conv.reset_parameters()
    assert conv.prior.share == 0.5


@pytest.mark.parametrize('name', ['forward', 'graph'])
def test_no_edge_joins_two_graphs(name):
    x, call = normal(N, 6), getattr(layer(), name)
    batch = torch.arange(N) // 4
    within = EDGES[:, [0, 1, 2, 4, 5]]
    for edges in (within, EDGES[:, :0]):
        call(x, edges, batch=batch)
        call((x, x), edges, batch=(batch, batch))
    text = r"'edge_index' joins two graphs of 'batch' \(got edge \[0, 5\]\)"
    wrong = torch.cat([within, torch.tensor([[0], [5]])], dim=1)
    with pytest.raises(ValueError, match=text):
        call(x, wrong, batch=batch)
    with pytest.raises(ValueError, match=text):
        call((x, x), wrong, batch=(batch, batch))
