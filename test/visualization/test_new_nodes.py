"""New rows beside those of training, names of targets, and models as graphs."""

import copy
import pickle

import numpy as np
import pandas
import pytest
import scipy.sparse
import torch
from pages import colours, content, notes
from torch_geometric.data import Data

from torch_geometric_gsl import CosineSimilarity, GSLNet, GumbelKNNSampler, TableNet
from torch_geometric_gsl.nn.conv import LatentGraphConv
from torch_geometric_gsl.sklearn import GSLClassifier, GSLRegressor
from torch_geometric_gsl.typing import PairGraph, SampledGraph
from torch_geometric_gsl.visualization import explore, plot_adjacency, plot_graph

pytestmark = [
    pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning'),
    pytest.mark.filterwarnings('ignore:no signal was found'),
    pytest.mark.filterwarnings('ignore:.* rows are far from all training rows'),
]
BRIEF = {'n_members': 1, 'hidden_channels': 16, 'max_iter': 3, 'random_state': 0}
X = np.random.default_rng(0).normal(size=(60, 3))
PRICE = X[:, 0] + 0.1 * X[:, 1]
GRADE = np.where(X[:, 0] > 0, 'ripe', 'raw')
FRAME = pandas.DataFrame(X, columns=['a', 'b', 'c'], index=np.arange(60) * 10)
FRAME = FRAME.assign(
    kind=['flat', None, 'house'] * 20,
    sold=pandas.date_range('1970-01-02', periods=60, tz='Europe/Berlin'),
)
# The rows of training; the others are new.
N = 50
EDGES = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 3]])
WEIGHT = torch.tensor([0.5, 0.4, 0.1, 0.3, 0.2])


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'graph.html'


def edges_into_new(page):
    """The weights of edges into new rows, by source and new row."""
    (graph,) = content(page)['graphs']
    edges = zip(graph['source'], graph['target'], graph['weight'], strict=True)
    return {(s, t - N): weight for s, t, weight in edges if t >= N}


def assert_shows_new_rows(model, page, rows):
    """The page has the numbers of `predict`, `kneighbors` and `contributions`."""
    nodes = content(page)['nodes']
    num_new = len(nodes['names']) - N
    assert nodes['new'] == [*range(N, N + num_new)]
    assert not {*content(page)['graphs'][0]['source']} & {*nodes['new']}
    weights, sources = model.kneighbors(rows, N - 1)
    expected = {
        (source, i): weight
        for i in range(num_new)
        for source, weight in zip(sources[i], weights[i], strict=True)
    }
    edges = edges_into_new(page)
    assert edges.keys() == expected.keys()
    np.testing.assert_allclose(
        [*edges.values()], [expected[edge] for edge in edges], rtol=1e-3
    )
    shown = colours(page)
    change = model.contributions(rows)['neighbours']
    from_neighbours = shown['prediction from neighbours']['values']
    assert from_neighbours[:N] == [None] * N
    np.testing.assert_allclose(from_neighbours[N:], change, rtol=1e-4)
    assert shown['row']['classes'] == ['training', 'new']
    assert shown['row']['values'] == [0] * N + [1] * num_new
    return shown


@pytest.mark.parametrize('as_row', [np.asarray, np.ndarray.tolist, pandas.DataFrame])
def test_new_rows_of_numbers(as_row, path):
    model = GSLRegressor('learned', eval_k=N - 1, **BRIEF).fit(X[:N], PRICE[:N])
    new = as_row(X[N:])
    shown = assert_shows_new_rows(model, model.explore(path, X_new=new), new)
    np.testing.assert_allclose(shown['target']['values'][:N], PRICE[:N], rtol=1e-4)
    assert shown['target']['values'][N:] == [None] * 10
    predictions = [*model.transduction_, *model.predict(new)]
    np.testing.assert_allclose(shown['prediction']['values'], predictions, rtol=1e-4)
    np.testing.assert_allclose(shown['x2']['values'], X[:, 2], rtol=1e-4)
    assert content(path)['nodes']['names'][N - 1 : N + 1] == ['49', 'new 0']


def test_new_rows_of_a_table(path):
    y = pandas.Series(GRADE, FRAME.index, name='taste')
    model = GSLClassifier('learned', eval_k=N - 1, **BRIEF).fit(FRAME[:N], y[:N])
    # Another order, and a column of no use.
    new = FRAME[N:].iloc[:, ::-1].assign(more=1)
    for estimator in (model, pickle.loads(pickle.dumps(model))):
        shown = assert_shows_new_rows(estimator, estimator.explore(path, new), new)
        assert [*shown][:4] == [
            'taste',
            'prediction',
            'prediction from neighbours',
            'row',
        ]
    assert shown['taste']['classes'] == ['raw', 'ripe']
    assert shown['taste']['values'] == [int(g == 'ripe') for g in y[:N]] + [None] * 10
    predictions = [*model.transduction_, *model.predict(new)]
    texts = [shown['prediction']['classes'][i] for i in shown['prediction']['values']]
    assert texts == predictions
    assert shown['kind']['values'] == [0, None, 1] * 20
    assert shown['sold']['values'][-1] == 60 * 86400.0 - 3600
    assert content(path)['nodes']['names'][N - 1 : N + 1] == ['490', 'new 500']
    # The array of the same columns, of which scikit-learn warns.
    with pytest.warns(UserWarning, match='does not have valid feature names'):
        model.explore(path, new[[*FRAME]].to_numpy())
    again = colours(path)
    assert again['kind']['values'] == shown['kind']['values']


def test_new_rows_of_sparse_rows(path):
    rows = scipy.sparse.csr_matrix(np.abs(X))
    # Classes of any integers, unknown in most rows.
    y = np.where(np.arange(60) % 6 == 0, 7, np.where(X[:, 0] > 0, 3, 11))
    y[np.arange(60) % 3 == 1] = y[np.arange(60) % 3 == 2] = -1
    model = GSLClassifier('learned', eval_k=N - 1, **BRIEF).fit(rows[:N], y[:N])
    for new in (rows[N:], rows[N:].toarray()):
        shown = assert_shows_new_rows(model, model.explore(path, new), rows[N:])
        assert shown['target']['classes'] == ['3', '7', '11']
        assert shown['target']['values'] == [
            None if i >= N or y[i] < 0 else [3, 7, 11].index(y[i]) for i in range(60)
        ]
        np.testing.assert_allclose(
            shown['feature 1']['values'], np.abs(X[:, 1]), rtol=1e-4
        )
    renamed = colours(model.explore(path, new, class_names=['lo', 'mid', 'hi']))
    assert renamed['prediction']['classes'] == ['lo', 'mid', 'hi']


def test_a_file_keeps_the_name_of_the_target(tmp_path, path):
    y = pandas.Series(PRICE[:N].round(), name=('sold', 1))
    model = GSLRegressor('learned', **BRIEF).fit(X[:N], y.astype(int))
    model.save(tmp_path / 'model.pt')
    shown = colours(GSLRegressor.load(tmp_path / 'model.pt').explore(path))
    # Integers are numbers, too.
    assert shown["('sold', 1)"]['kind'] == 'number'
    assert 'row' not in shown
    assert content(path)['nodes']['new'] == []
    model.fit(X[:N], PRICE[:N])
    assert 'target' in colours(model.explore(path))
    assert 'mine' in colours(model.explore(path, target_name='mine'))


@pytest.mark.parametrize(
    ('new', 'error', 'message'),
    [
        (X[:0], ValueError, r'0 sample\(s\)'),
        (X[:, :2], ValueError, 'X has 2 features'),
        (X[0], ValueError, 'Reshape your data'),
        (np.full((1, 3), np.nan), ValueError, 'contains NaN'),
        ('new.csv', TypeError, 'must be a table'),
    ],
)
def test_bad_new_rows(new, error, message, path):
    model = GSLRegressor('learned', **BRIEF).fit(X[:N], PRICE[:N])
    with pytest.raises(error, match=rf"'X_new' must hold rows .*{message}"):
        model.explore(path, new)
    with pytest.raises(TypeError, match="'path' must be a file: pass rows as 'X_new'"):
        model.explore(X)
    assert not path.exists()


def test_new_rows_without_the_columns_of_training(path):
    model = GSLRegressor('learned', **BRIEF).fit(FRAME[:N], PRICE[:N])
    for new, message in (
        (FRAME[N:].drop(columns='b'), r"columns are missing: \['b'\]"),
        (FRAME[:0], 'must have rows'),
        (FRAME[N:].assign(b='x'), "column 'b' must hold numbers"),
    ):
        with pytest.raises(ValueError, match=rf"'X_new' must hold rows .*{message}"):
            model.explore(path, new)


def test_edges_into_new_nodes_come_first(path):
    new = torch.tensor([False, False, False, True])
    graph = EDGES, WEIGHT
    (drawn,) = content(explore(graph, new_mask=new, max_edges=3, path=path))['graphs']
    edges = zip(drawn['source'], drawn['target'], drawn['weight'], strict=True)
    assert list(edges) == [(1, 3, 0.2), (2, 3, 0.1), (0, 1, 0.5)]
    assert drawn['total'] == 5
    assert content(path)['nodes']['new'] == [3]
    assert colours(path)['row']['values'] == [0, 0, 0, 1]
    for mask, message in (
        (new.long(), r'hold booleans \(got \[4\] of torch.int64\)'),
        (new[:3], 'one row per node'),
        (new.view(4, 1), r'shape \[n\]'),
    ):
        with pytest.raises(ValueError, match=f"'new_mask' must .*{message}"):
            explore(graph, new_mask=mask, path=path)


def test_several_predictions(path):
    prediction = {'first': [0, 1, 1, 0], 'second': [0.5, 1.5, 2.5, 3.5]}
    data = Data(y=torch.tensor([1, 0, 1, 2]))
    page = explore((EDGES, WEIGHT), data=data, prediction=prediction, path=path)
    shown = colours(page)
    assert [*shown] == ['target', 'first', 'second']
    assert shown['first']['classes'] == ['0', '1', '2']
    assert shown['second']['values'] == prediction['second']
    with pytest.raises(ValueError, match="'second' must have one row per node"):
        explore((EDGES, WEIGHT), prediction={'second': [0.5]}, data=data, path=path)


UNTRAINED = 'This model was never trained: nothing in its graph is learned yet.'


def nets():
    return {
        'net': GSLNet(3, 8, 2, 2, eval_k=5),
        'layer': LatentGraphConv(3, 2, eval_k=5),
        'table': TableNet(3, 8, 2, eval_k=5),
    }


@pytest.mark.parametrize('name', nets())
def test_a_model_that_was_never_trained_says_so(name, path):
    x = torch.from_numpy(X).float()
    model = nets()[name]
    data = Data(x=x)
    by_chance = Data(x=x, y=torch.arange(60) % 2)
    page = explore(model, data=data, path=path)
    assert notes(page) == [UNTRAINED]
    # Its homophily is not judged as well.
    assert notes(explore(model, data=by_chance, path=path)) == [UNTRAINED]
    _, graphs = copy.deepcopy(model).eval()(x, return_graph=True)
    graphs = graphs if isinstance(graphs, list) else [graphs]
    shown = content(page)['graphs']
    assert [graph['name'] for graph in shown] == ['layer 1', 'layer 2'][: len(graphs)]
    for graph, expected in zip(shown, graphs, strict=True):
        edges = {*zip(*expected.edge_index.tolist(), strict=True)}
        assert {*zip(graph['source'], graph['target'], strict=True)} == edges
    # Evaluation is no training, and neither is it for the page.
    model.eval()(x)
    assert notes(explore(copy.deepcopy(model), data=data, path=path)) == [UNTRAINED]
    assert notes(explore(graphs[0], data=data, path=path)) == []
    loaded = nets()[name]
    loaded.load_state_dict(model.state_dict())
    assert notes(explore(loaded, data=data, path=path)) == []
    # Nor is a draw without a gradient.
    out = model.train()(x)
    assert notes(explore(model, data=data, path=path)) == [UNTRAINED]
    assert model.training
    out.sum().backward()
    assert notes(explore(copy.deepcopy(model), data=data, path=path)) == []
    model.reset_parameters()
    assert notes(explore(model, data=data, path=path)) == [UNTRAINED]


@pytest.mark.parametrize(
    'model', [GSLNet(3, 8, 2, 2, num_transition_nodes=4, num_nodes=60), torch.nn.ReLU()]
)
def test_models_without_a_graph_of_the_nodes(model, path):
    with pytest.raises(
        TypeError, match=r"'graph' must be .* graph of one set of nodes"
    ):
        explore(model, data=Data(x=torch.ones(60, 3)), path=path)


def test_a_model_needs_features(path):
    with pytest.raises(TypeError, match=r"'data.x' must be a torch.Tensor, of which"):
        explore(GSLNet(3, 8, 2, 2), path=path)


def test_a_sampler(path):
    sampler = GumbelKNNSampler(CosineSimilarity(3), eval_k=4)
    x = torch.from_numpy(X).float()
    assert notes(explore(sampler, data=Data(x=x), path=path)) == [UNTRAINED]
    assert sampler.training
    (graph,) = content(path)['graphs']
    assert graph['name'] == 'graph'
    expected = sampler.eval()(x).edge_index
    edges = {*zip(graph['source'], graph['target'], strict=True)}
    assert edges == {*zip(*expected.tolist(), strict=True)}
    with pytest.raises(TypeError, match=r"'data.x' must be a torch.Tensor, of which"):
        explore(sampler, path=path)
    # A layer that ignores weights does not train it, even if it is trained itself.
    for weighs, text in ((False, [UNTRAINED]), (True, [])):
        edge_index, weight = sampler.train()(x.clone().requires_grad_())
        h = x[edge_index[0]].requires_grad_()
        (h * weight.view(-1, 1) if weighs else h).sum().backward()
        assert notes(explore(sampler, data=Data(x=x), path=path)) == text
    # A loss of the graph of a layer does as well.
    conv = LatentGraphConv(3, 8)
    conv.graph(x).edge_weight.square().sum().backward()
    assert notes(explore(conv, data=Data(x=x), path=path)) == []


ROWS = torch.from_numpy(X).float()
SAMPLER = GumbelKNNSampler(CosineSimilarity(3), eval_k=4)
PAIRS = {
    'sampler': lambda x: SAMPLER(x),
    'layer': lambda x: LatentGraphConv(3, 8, eval_k=4).graph(x),
    'net': lambda x: GSLNet(3, 8, 2, 2, eval_k=4).eval().graphs(x)[1],
    'table': lambda x: TableNet(3, 8, 1, eval_k=4)(x, return_graph=True)[1],
    'pruned': lambda x: SAMPLER(x).prune(0.01),
}


@pytest.mark.parametrize('make', PAIRS.values(), ids=PAIRS)
def test_targets_that_are_other_nodes(make, path):
    data = Data(x=ROWS[:N])
    graph = make((ROWS[:N], ROWS[N:]))
    assert type(graph) is PairGraph
    one_set = (
        r"'graph' must join the nodes of one set \(got edges from sources to other"
    )
    with pytest.raises(ValueError, match=one_set):
        explore(graph, data=data, path=path)
    for plot in (plot_graph, plot_adjacency):
        with pytest.raises(ValueError, match=one_set):
            plot(graph)
    assert not path.exists()
    # As the error says.
    edges = graph.edge_index + torch.tensor([[0], [N]])
    explore((edges, graph.edge_weight), data=Data(x=ROWS), path=path)
    assert type(make(ROWS)) is SampledGraph


def test_rows_that_are_new_to_an_indexed_net(path):
    net = GSLNet(3, 8, 2, 2, eval_k=4).eval().index(ROWS[:N])
    with pytest.raises(
        ValueError, match=r"call 'clear_index' on a model with an index"
    ):
        explore(net, data=Data(x=ROWS[N:]), path=path)
    explore(net.clear_index(), data=Data(x=ROWS[N:]), path=path)
