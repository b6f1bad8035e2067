"""KNNLINKX against PyG's LINKX."""

import pytest
import torch
from oracles import seeded
from torch.nn import functional as F
from torch_geometric.nn.models import LINKX

from reproduction.baselines import KNNLINKX

N, IN, OUT = 14, 5, 3


def features():
    return torch.randn(N, IN, generator=seeded(0), dtype=torch.float64)


def make(num_layers=2, **kwargs):
    torch.manual_seed(1)
    model = KNNLINKX(IN, 6, num_layers, OUT, k=3, num_nodes=N, **kwargs).double()
    with torch.no_grad():
        # As a training leaves them: a fresh norm does nothing and could be left out.
        for name, value in model.state_dict().items():
            if name.endswith('running_var'):
                value.uniform_(0.2, 1.2)
            elif value.is_floating_point():
                value.normal_()
    return model


def linkx_of(model):
    """PyG's model, with the same weights."""
    sizes = IN, 6, OUT, model.num_layers
    other = LINKX(N, *sizes, dropout=model.dropout).to(model.linkx.edge_lin.bias)
    other.load_state_dict(model.linkx.state_dict())
    return other.train(model.training)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('num_layers', [1, 2, 3])
@pytest.mark.parametrize('layout', ['dense', 'sparse'])
@pytest.mark.parametrize('num_graphs', [1, 2])
def test_linkx_is_pyg_s_on_the_nearest_neighbours(
    layout, num_layers, num_graphs, training
):
    model = make(num_layers, dropout=0.0).train(training)
    x, batch = features(), torch.arange(N) * num_graphs // N
    cosine = F.normalize(x) @ F.normalize(x).t()
    apart = (batch.unsqueeze(1) != batch) | torch.eye(N, dtype=torch.bool)
    source = cosine.masked_fill(apart, -2).topk(3).indices
    edge_index = torch.stack([source, torch.arange(N).unsqueeze(1).expand(N, 3)])
    expected = linkx_of(model)(x, edge_index.flatten(1))
    given = x if layout == 'dense' else x.to_sparse_csr()
    batch = None if num_graphs == 1 else batch
    torch.testing.assert_close(model(given, batch=batch), expected)
    assert model.graphs(given, batch=batch)[0].edge_weight.tolist() == [1.0] * 3 * N


def test_linkx_is_pyg_s_on_a_given_graph():
    model, x = make(dropout=0.3), features()
    edge_index, weight = torch.randint(0, N, (2, 30)), torch.rand(30).double()
    edge_index[:, 1] = edge_index[:, 0]
    for training in (True, False):
        other = linkx_of(model.train(training))
        torch.manual_seed(2)
        out = model(x, edge_index, edge_weight=weight)
        torch.manual_seed(2)
        torch.testing.assert_close(out, other(x, edge_index, weight))
