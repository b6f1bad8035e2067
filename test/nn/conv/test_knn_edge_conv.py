import copy

import pytest
import torch
from torch_geometric.nn import EdgeConv
from torch_geometric.utils import softmax

from torch_geometric_gsl import KNNEdgeConv, knn_graph

BATCH = torch.tensor([0, 0, 1, 2]).repeat_interleave(10)


def points(n=40, width=3, seed=0):
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed))


def network():
    torch.manual_seed(0)
    sizes = torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)
    return torch.nn.Sequential(*sizes)


@pytest.mark.parametrize('aggr', ['max', 'mean', 'sum'])
@pytest.mark.parametrize('loop', [True, False])
@pytest.mark.parametrize('batch', [None, BATCH])
@pytest.mark.parametrize('tau', [None, 0.5])
def test_is_the_edge_convolution_of_the_nearest(aggr, loop, batch, tau):
    x, nn = points(), network()
    conv = KNNEdgeConv(nn, 5, aggr, loop=loop, tau=tau)
    expected = EdgeConv(nn, aggr)(x, knn_graph(x, 5, batch, loop))
    torch.testing.assert_close(conv(x, batch), expected)


def test_pairs_and_compared_rows():
    x, z = (points(), points(20, seed=1)), (points(width=2), points(20, 2, seed=1))
    conv, batch = KNNEdgeConv(network(), 5), (BATCH, BATCH[::2])
    edges = knn_graph(z, 5, batch)
    expected = EdgeConv(conv.nn)(x, edges)
    torch.testing.assert_close(conv(x, batch, z=z), expected)
    assert expected.shape == (20, 4)


@pytest.mark.parametrize('aggr', ['max', 'sum'])
def test_gradient_of_the_metric_is_that_of_weighed_messages(aggr):
    x, z = points().double(), points(width=2).double().requires_grad_()
    conv = KNNEdgeConv(network().double(), 5, aggr, tau=0.5)
    conv(x, z=z).square().sum().backward()
    grad, edges = z.grad, knn_graph(z, 5, loop=True)
    twin = z.detach().clone().requires_grad_()
    source, target = edges
    distance = (twin[source] - twin[target]).square().sum(dim=1)
    weight = softmax(-distance / 0.5, target)
    # The derivative of the output with each weight, where all weigh 1.
    ones = torch.ones(edges.size(1), 1, dtype=torch.double, requires_grad=True)
    message = conv.nn(torch.cat([x[target], x[source] - x[target]], dim=1)) * ones
    out = conv.aggr_module(message, target)
    (slope,) = torch.autograd.grad(out.square().sum(), ones)
    (expected,) = torch.autograd.grad((slope.squeeze(1) * weight).sum(), twin)
    torch.testing.assert_close(grad, expected)
    assert grad.abs().amax() > 1e-3
    assert KNNEdgeConv(network().double(), 5)(x, z=z.detach()).requires_grad


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = KNNEdgeConv(torch.nn.Linear(6, 8), 4)
        self.second = KNNEdgeConv(torch.nn.Linear(16, 8), 4, loop=False)

    def forward(self, x):
        return self.second(self.first(x).relu())


def clouds():
    """Clouds of several sizes, with duplicates and ties."""
    return [points(9), points(30).round(), torch.zeros(12, 3)]


def test_export():
    net, shapes = Net().eval(), ({0: torch.export.Dim('n', min=5)},)
    program = torch.export.export(net, (points(16),), dynamic_shapes=shapes).module()
    for x in clouds():
        torch.testing.assert_close(program(x), net(x))
    x = points(30).round()
    graph = copy.deepcopy(net.first)
    graph.forward = lambda x: knn_graph(x, 4)
    program = torch.export.export(graph, (points(16),), dynamic_shapes=shapes).module()
    assert torch.equal(program(x), knn_graph(x, 4))


@pytest.mark.filterwarnings('ignore')  # Those of the exporter itself.
def test_onnx(tmp_path):
    runtime = pytest.importorskip('onnxruntime')
    pytest.importorskip('onnxscript')
    net, shapes = Net().eval(), ({0: torch.export.Dim('n', min=5)},)
    args = {'dynamo': True, 'dynamic_shapes': shapes, 'verbose': False}
    torch.onnx.export(net, (points(16),), **args).save(tmp_path / 'net.onnx')
    session = runtime.InferenceSession(tmp_path / 'net.onnx')
    (name,) = (node.name for node in session.get_inputs())
    for x in clouds():
        (out,) = session.run(None, {name: x.numpy()})
        torch.testing.assert_close(torch.from_numpy(out), net(x).detach())


@pytest.mark.parametrize(
    ('options', 'error', 'text'),
    [
        ({'k': 0}, ValueError, r"'k' must be at least 1 \(got 0\)"),
        ({'tau': 0.0}, ValueError, r"'tau' must .*\(got 0.0\)"),
        ({'loop': 'no'}, TypeError, "'loop' must be a bool"),
    ],
)
def test_bad_options(options, error, text):
    with pytest.raises(error, match=text):
        KNNEdgeConv(network(), **{'k': 3, **options})


@pytest.mark.parametrize(
    ('x', 'z', 'error', 'text'),
    [
        (points(), points(20), ValueError, "'z' must have one row per node"),
        (points(), (points(), points()), TypeError, "'z' must be a tensor like 'x'"),
        ((points(), points(20)), points(), TypeError, "'z' must be a pair like 'x'"),
        (points() * torch.nan, points(), ValueError, "'x' contains NaN"),
    ],
)
def test_bad_compared_rows(x, z, error, text):
    with pytest.raises(error, match=text):
        KNNEdgeConv(network(), 5)(x, z=z)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_temperatures_in_half_precision(dtype):
    conv = KNNEdgeConv(torch.nn.Linear(6, 4), k=3, tau=0.5).to(dtype)
    out = conv(torch.randn(20, 3).to(dtype))
    assert out.dtype == dtype
    assert out.isfinite().all()
