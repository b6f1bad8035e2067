"""What the package's models promise, of the published ones as well."""

import copy
import pickle

import pytest
import torch
from oracles import seeded
from small_baselines import IN, OUT, PUBLISHED, N, features, find, make_baseline
from torch_geometric import EdgeIndex
from torch_geometric.nn import to_hetero

import torch_geometric_gsl as gsl
from reproduction import baselines
from torch_geometric_gsl import NodeClassifier
from torch_geometric_gsl.ops.local_random import DrawsFrom

EACH = pytest.mark.parametrize('name', PUBLISHED)
CASES = pytest.mark.parametrize(
    ('name', 'number'),
    [(name, number) for name, rows in PUBLISHED.items() for number in range(len(rows))],
)
ON_GIVEN_EDGES = ['KNNLINKX', 'IDGL', 'IDGLAnchor']
EDGES = torch.randint(N, (2, 40), generator=seeded(1))
Y = torch.arange(N) % OUT


@pytest.mark.parametrize('name', PUBLISHED)
def test_the_old_name_tells_the_new_one(name):
    with pytest.raises(AttributeError, match=f"'reproduction.baselines.{name}'"):
        getattr(gsl, name)


def test_every_model_is_covered():
    assert set(PUBLISHED) == set(baselines.__all__)


@CASES
def test_files_copies_and_resets(name, number, tmp_path):
    torch.manual_seed(5)
    model = make_baseline(name, number)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.rand(parameter.shape, generator=seeded(1)))
    expected = model.eval()(features())
    model.save(tmp_path / 'model.pt')
    again = NodeClassifier.load(tmp_path / 'model.pt')
    for other in (again, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other) is type(model)
        assert repr(other) == repr(model)
        assert torch.equal(other(features()), expected)
    again.train().loss(features(), Y, torch.arange(N)).backward()
    assert any(parameter.grad is not None for parameter in again.parameters())
    torch.manual_seed(6)
    model.reset_parameters()
    torch.manual_seed(6)
    again.reset_parameters()
    for own, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(own, other)


@EACH
def test_one_type_of_nodes(name):
    model = make_baseline(name)
    with pytest.raises(TypeError, match="got 'to_hetero'"):
        to_hetero(model, (['a', 'b'], [('a', 'to', 'b'), ('b', 'of', 'a')]))
    with pytest.raises(TypeError, match='got a dict'):
        model({'a': features()})


@pytest.mark.parametrize('name', sorted(set(PUBLISHED) - {'NodeFormer'}))
def test_one_set_of_nodes(name):
    model, x = make_baseline(name), features()
    for call in (model, model.predict, lambda x: model.loss(x, Y)):
        with pytest.raises(TypeError, match=r"'x' must be a torch\.Tensor \(got tuple"):
            call((x, x))


@pytest.mark.parametrize('name', ON_GIVEN_EDGES)
def test_given_edges_and_their_weights(name):
    model, x = make_baseline(name).double().eval(), features().double()
    weight = torch.rand(40, generator=seeded(2)).double()
    plain = model(x, EDGES)
    assert torch.equal(model(x, EdgeIndex(EDGES)), plain)
    torch.testing.assert_close(model(x, EDGES, torch.ones_like(weight)), plain)
    assert not torch.allclose(model(x, EDGES, weight), plain)
    keep = EDGES[0] > 1
    expected = model(x, EDGES[:, keep], weight[keep])
    torch.testing.assert_close(model(x, EDGES, weight * keep), expected)


@EACH
@pytest.mark.parametrize('task', ['regression', 'binary', 'multilabel'])
def test_tasks(name, task):
    x, width = features(), 4 if task == 'multilabel' else 1
    y = x[:, :width].squeeze(1) if width == 1 else x[:, :width]
    y = y if task == 'regression' else (y > 0).long()
    options = {'HESGSL': {'homophily_weight': 0.0}}.get(name, {})
    torch.manual_seed(0)
    model = make_baseline(name, out_channels=width, task=task, **options)
    model.loss(x, y, torch.arange(6)).backward()
    scores = {'regression': 'r2', 'binary': 'accuracy', 'multilabel': 'micro_f1'}
    assert list(model.score(x, y, torch.arange(6, N))) == [scores[task]]
    assert model.predict(x).shape == y.shape
    assert f"task='{task}'" in repr(model)


def test_homophily_needs_classes():
    with pytest.raises(ValueError, match="'homophily_weight' must be 0 with task='reg"):
        find('HESGSL')(IN, 8, 2, 1, task='regression')


@EACH
def test_the_loss_is_of_the_labelled_nodes(name):
    def loss(mask):
        torch.manual_seed(1)
        return make_baseline(name).loss(features(), Y, mask)

    one = torch.arange(N) == 3
    assert bool(loss(one).isfinite())
    assert torch.equal(loss(torch.tensor([3])), loss(one))
    with pytest.raises(ValueError, match="'mask' must choose at least one node"):
        loss(torch.zeros_like(one))


@pytest.mark.parametrize('name', ['NodeFormer', 'IDGLAnchor'])
def test_buffers_come_from_the_local_generator(name):
    with DrawsFrom(seeded(4)):
        found = make_baseline(name).state_dict()
    torch.manual_seed(4)
    expected = make_baseline(name).state_dict()
    assert all(torch.equal(found[key], value) for key, value in expected.items())
