"""GSLNet, whose layers learn several graphs each."""

import pytest
import torch
from oracles import check_gradients, seeded, to_matrix

from torch_geometric_gsl import GSLNet, MultiplexLatentGraphConv

N = 20
X = torch.randn(N, 6, generator=seeded(0))
Y = torch.arange(N) % 3


def make(num_relations=2, **options):
    torch.manual_seed(0)
    own = {'k': 3, 'loop': True, 'dropout': 0.0, 'z_channels': None}
    options = own | {'num_relations': num_relations} | options
    return GSLNet(6, 8, 2, 3, **options)


@pytest.mark.parametrize('z_channels', [None, -1])
def test_layers_and_graphs(z_channels):
    model = make(z_channels=z_channels).eval()
    assert all(isinstance(conv, MultiplexLatentGraphConv) for conv in model.convs)
    graphs = model.graphs(X)
    assert len(graphs) == 2
    mixed = sum(
        share * to_matrix(*graph, N, N)
        for share, graph in zip(
            model.convs[0].shares(), model.convs[0].graphs(X), strict=True
        )
    )
    torch.testing.assert_close(to_matrix(*graphs[0], N, N), mixed)
    samplers = [conv.relations[1].sampler for conv in model.convs]
    assert (samplers[0] is samplers[1]) == (z_channels == -1)
    torch.testing.assert_close(model((X, X[:3])), model(X)[:3])
    mixed = model.graphs((X, X[:3]))
    for graph, other in zip(mixed, graphs, strict=True):
        expected = to_matrix(*other, N, N)[:3]
        torch.testing.assert_close(to_matrix(*graph, N, N)[:3], expected)


def test_training_and_repr():
    model = make(shares='node')
    model.loss(X, Y, torch.arange(10)).backward()
    check_gradients(model)
    assert str(model) == ('GSLNet(6, 8, num_layers=2, out_channels=3, num_relations=2)')
    with pytest.raises(ValueError, match="'num_relations' has no meaning with transit"):
        make(num_transition_nodes=4, num_nodes=N)
    with pytest.raises(ValueError, match=r"'num_relations' must be at least 1 \(got 0"):
        make(0)
