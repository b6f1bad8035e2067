"""Models are left as they were by all methods but training, and serve threads."""

import copy
import warnings
from functools import partial

import pytest
import torch
from digest import digest
from oracles import at_once, seeded
from torch_geometric.data import Data

from torch_geometric_gsl import (
    GSLNet,
    TableNet,
)
from torch_geometric_gsl.diagnostics import describe_model
from torch_geometric_gsl.nn.shared_module import evaluation
from torch_geometric_gsl.transforms import FreezeLatentGraph

N, IN, OUT = 40, 6, 3
X = torch.randn(N, IN, generator=seeded(1))
NEW = torch.randn(5, IN, generator=seeded(2))
Y = torch.arange(N) % OUT
MODELS = {
    'GSLNet': lambda: GSLNet(IN, 8, 2, OUT),
    'GSLNet of projections': lambda: GSLNet(IN, 8, 3, OUT, z_channels=None),
    'few neighbours': lambda: GSLNet(IN, 8, 2, OUT, eval_k=5),
    'transition': lambda: GSLNet(IN, 8, 2, OUT, num_transition_nodes=5, num_nodes=N),
    'readout': lambda: GSLNet(IN, 8, 2, OUT, readout='mean'),
}


def make(name, training):
    """A model that was trained, with an index where there can be one."""
    torch.manual_seed(0)
    model = MODELS[name]().train()
    model(X)
    if hasattr(model, 'index'):
        model.index(X)
    return model.train(training) if not training else model


@pytest.mark.parametrize('training', [True, False, None])
@pytest.mark.parametrize('name', MODELS)
def test_methods_leave_a_model_as_it_was(name, training, tmp_path):
    model = make(name, bool(training))
    if training is None:  # Partly.
        model.act.train()
        next(iter(model.children())).train()
    before = digest(model)
    new = NEW if hasattr(model, 'index') else X
    model.predict(new)
    assert digest(model) == before
    if name != 'readout':
        model.score(X, Y)
    model.save(tmp_path / 'model.pt')
    repr(model)
    copy.deepcopy(model)
    assert digest(model) == before
    for method, args in [
        (model.predict, (new[:, :3],)),
        (model.predict, (None,)),
        (model.score, (X, Y[:4])),
        (model.save, (tmp_path / 'none' / 'model.pt',)),
    ]:
        with pytest.raises((TypeError, ValueError, OSError, IndexError)):
            method(*args)
        assert digest(model) == before
    if hasattr(model, 'graphs'):
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter('ignore')  # The index is not used in training.
            model.eval()
            before = digest(model)
            model.graphs(new)
            assert digest(model) == before
            with pytest.raises(ValueError, match='channels'):
                model.graphs(new[:, :3])
    assert digest(model) == before


def test_a_table_net_is_left_as_it_was(tmp_path):
    torch.manual_seed(0)
    net = TableNet(IN, 8, 1, num_frequencies=0, eval_k=7).eval().index(X)
    before = digest(net)
    net(NEW, return_graph=True)
    net((X, NEW), torch.zeros(N))
    net.save(tmp_path / 'net.pt')
    repr(net)
    with pytest.raises(ValueError, match='channels'):
        net(NEW[:, :3])
    with pytest.raises(ValueError, match='one label for each'):
        net.index(X, torch.zeros(3))
    assert digest(net) == before


@pytest.mark.filterwarnings('ignore:.*after training on')
def test_warnings_leave_a_model_as_it_was():
    model = make('GSLNet', True).clear_index()
    model.train()(X)
    before = digest(model.eval())
    model(NEW)
    assert digest(model) == before
    model.train()
    before = digest(model)
    model.predict(NEW)
    assert digest(model) == before


@pytest.mark.parametrize('training', [True, False])
def test_readers_leave_a_model_as_it_was(training):
    model = make('GSLNet of projections', True).clear_index().train(training)
    before = digest(model)
    describe_model(model, X)
    FreezeLatentGraph(model, k=3)(Data(x=X))
    with pytest.raises(ValueError, match='channels'):
        FreezeLatentGraph(model, k=3)(Data(x=X[:, :3]))
    assert digest(model) == before


@pytest.mark.parametrize('name', MODELS)
def test_threads_predict_with_a_model_in_training_mode(name):
    model = make(name, True)
    new = NEW if hasattr(model, 'index') else X
    # Outputs, as classes hide small errors.
    expected = copy.deepcopy(model).eval()(new)
    before = digest(model)
    for out in at_once(lambda: model._evaluated(new), repeats=10):
        torch.testing.assert_close(out, expected)
    assert digest(model) == before
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize('similarity', ['distance', 'cosine'])
def test_threads_predict_with_a_table_net(similarity):
    torch.manual_seed(0)
    options = {'num_frequencies': 0, 'eval_k': 7, 'similarity': similarity}
    net = TableNet(IN, 8, 1, **options).eval().index(X)
    expected, before = net(NEW), digest(net)
    for out in at_once(lambda: net(NEW), repeats=10):
        torch.testing.assert_close(out, expected)
    assert digest(net) == before


def test_threads_store_graphs_of_few_neighbours():
    model = GSLNet(IN, 8, 2, OUT).eval()
    transform = FreezeLatentGraph(model, k=3)
    expected = transform(Data(x=X)).edge_index
    for data in at_once(lambda: transform(Data(x=X)), repeats=10):
        assert torch.equal(data.edge_index, expected)
    assert model.convs[0].sampler.eval_k is None


class Nested(torch.nn.Module):
    """A module that refers to its parts in several ways."""

    def __init__(self):
        super().__init__()
        self.first, self.none = torch.nn.Dropout(0.5), None
        self.listed = [self.first]
        self.named = {'first': self.first}
        self.call, self.bound = self.double, partial(Nested.double, self)
        self.unregistered = (torch.nn.Dropout(0.5),)
        self.register_buffer('calls', torch.zeros(()))

    def double(self, x):
        assert not self.training
        return 2 * x

    def forward(self, x):
        self.calls += 1
        self.state = x
        for layer in (self.first, self.listed[0], self.named['first']):
            x = layer(x)
        return self.bound(self.call(x))


def test_a_twin_shares_all_but_modes():
    module, x = Nested(), torch.ones(100)
    with evaluation(module) as twin:
        assert torch.equal(twin(x), 4 * x)
        assert not torch.is_grad_enabled()
        assert twin.unregistered is module.unregistered
        assert twin.calls is module.calls
    assert module.training
    assert module.first.training
    assert not hasattr(module, 'state')
    module.eval()
    with evaluation(module) as same:
        assert same is module
    with evaluation(module, always_copy=True) as twin:
        twin.option = 3
    assert not hasattr(module, 'option')


def test_a_compiled_model_predicts_in_evaluation_mode():
    model = make('GSLNet', True)
    expected = model.predict(NEW)
    model.compile(backend='eager')
    assert torch.equal(model.predict(NEW), expected)


def test_a_model_of_unknown_width_learns_it_from_a_prediction():
    model = GSLNet(-1, 8, 2, OUT)
    out = model.predict(X)
    assert all(module.training for module in model.modules())
    assert torch.equal(model.predict(X), out)
    assert model.convs[0].lin.in_channels == IN
