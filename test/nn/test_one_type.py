"""`to_hetero` cannot make typed models of ours, and says why."""

import pytest
import torch
from oracles import seeded
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import to_hetero, to_hetero_with_bases

import torch_geometric_gsl as gsl

IN, OUT, N = 6, 4, 10
METADATA = (['a', 'b'], [('a', 'to', 'b'), ('b', 'of', 'a')])
REASON = "this module learns a graph on nodes of one type. Use 'HeteroLatentGraphConv'"
MODULES = {
    'LatentGraphConv': lambda: gsl.LatentGraphConv(IN, OUT),
    'SensorGraphConv': lambda: gsl.SensorGraphConv(IN, OUT, N),
    'TransitionGraphConv': lambda: gsl.TransitionGraphConv(IN, OUT, N, 3),
    'GSLNet': lambda: gsl.GSLNet(IN, 8, 2, OUT),
    'GumbelKNNSampler': lambda: gsl.GumbelKNNSampler.paper(gsl.LinearSimilarity(IN)),
}


class Outer(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.lin = torch.nn.Linear(IN, IN)
        self.inner = inner

    def forward(self, x):
        return self.inner(self.lin(x))


@pytest.mark.parametrize('name', MODULES)
def test_to_hetero(name):
    module = MODULES[name]()
    with pytest.raises(TypeError, match=rf"got 'to_hetero'\): {REASON}"):
        to_hetero(module, METADATA)
    with pytest.raises(TypeError, match=REASON):
        to_hetero_with_bases(module, METADATA, num_bases=2)
    x = {'a': torch.randn(3, IN), 'b': torch.randn(4, IN)}
    with pytest.raises(TypeError, match=rf'got a dict\): {REASON}'):
        module(x)
    with pytest.raises(TypeError, match=rf'got a HeteroData\): {REASON}'):
        module(HeteroData(a={'x': x['a']}))


def test_a_layer_inside_a_module_is_copied_for_each_type():
    outer = to_hetero(Outer(gsl.LatentGraphConv(IN, OUT)).eval(), METADATA)
    x = {'a': torch.randn(3, IN), 'b': torch.randn(4, IN)}
    out = outer(x)
    assert {name: rows.shape for name, rows in out.items()} == {
        'a': (3, OUT),
        'b': (4, OUT),
    }
    alone = outer({**x, 'b': x['b'] + 1})  # No graph joins the types.
    assert torch.equal(alone['a'], out['a'])


def test_data_is_no_tensor():
    data = Data(x=torch.randn(3, IN))
    with pytest.raises(TypeError, match=r'such as data.x \(got Data\)'):
        gsl.LatentGraphConv(IN, OUT)(data)


def test_other_tracers_are_left_alone():
    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, gsl.LatentGraphConv | torch.nn.Linear)

    outer = Outer(gsl.LatentGraphConv(IN, OUT)).eval()
    traced = torch.fx.GraphModule(outer, Tracer().trace(outer))
    x = torch.randn(N, IN, generator=seeded())
    assert torch.equal(traced(x), outer(x))
