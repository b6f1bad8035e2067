import pytest
import torch
from torch.nn import functional as F
from torch_geometric.nn.models import LINKX

from torch_geometric_gsl.baselines.knn_linkx import KNNLINKX

N, IN, OUT = 14, 5, 3


def features(n=N):
    return torch.randn(n, IN, generator=torch.Generator().manual_seed(0))


def make(num_layers=2, **kwargs):
    torch.manual_seed(1)
    return KNNLINKX(IN, 6, num_layers, OUT, **{'num_nodes': N, 'k': 3, **kwargs})


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
def test_is_pyg_s_linkx_on_the_nearest_neighbours(
    layout, num_layers, num_graphs, training
):
    model = make(num_layers, dropout=0.0).double().train(training)
    with torch.no_grad():
        # As a training leaves them: a fresh norm does nothing and could be left out.
        for name, value in model.linkx.state_dict().items():
            if name.endswith('running_var'):
                value.uniform_(0.2, 1.2)
            elif value.is_floating_point():
                value.normal_()
    x, batch = features().double(), torch.arange(N) * num_graphs // N
    cosine = F.normalize(x) @ F.normalize(x).t()
    apart = (batch.unsqueeze(1) != batch) | torch.eye(N, dtype=torch.bool)
    source = cosine.masked_fill(apart, -2).topk(3).indices
    edge_index = torch.stack([source, torch.arange(N).unsqueeze(1).expand(N, 3)])
    expected = linkx_of(model)(x, edge_index.flatten(1))
    given = x if layout == 'dense' else x.to_sparse_csr()
    batch = None if num_graphs == 1 else batch
    torch.testing.assert_close(model(given, batch=batch), expected)
    assert model.graphs(given, batch=batch)[0].edge_weight.tolist() == [1.0] * 3 * N


def test_is_pyg_s_linkx_on_a_given_graph():
    model, x = make(dropout=0.3), features()
    edge_index, weight = torch.randint(0, N, (2, 30)), torch.rand(30)
    edge_index[:, 1] = edge_index[:, 0]
    for training in (True, False):
        other = linkx_of(model.train(training))
        torch.manual_seed(2)
        out = model(x, edge_index, edge_weight=weight)
        torch.manual_seed(2)
        torch.testing.assert_close(out, other(x, edge_index, weight))


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('num_layers', [1, 2])
def test_sparse_half_precision(num_layers, training):
    model, x = make(num_layers, dropout=0.0).train(training), features()
    sparse, exact = x.to_sparse_csr(), model(x).detach()
    with torch.autocast('cpu', dtype=torch.bfloat16):
        of_autocast = model(sparse)
    model = model.bfloat16()
    for out in (of_autocast, model(x.bfloat16().to_sparse_csr())):
        assert out.dtype == torch.bfloat16
        torch.testing.assert_close(out.float(), exact, rtol=0.1, atol=0.1)
        assert not torch.equal(out.float(), exact)
    out.sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert bool(parameter.grad.isfinite().all())
