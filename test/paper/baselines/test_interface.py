"""Calls, layouts, batches, caches and randomness of every baseline."""

import copy
import inspect
from functools import partial
from unittest import mock

import pytest
import torch
from oracles import as_layout, seeded
from small_baselines import BASELINES, OUT, N, features, make_baseline
from torch_geometric import EdgeIndex

from reproduction import baselines
from reproduction.baselines import knn_gcn
from torch_geometric_gsl import NodeClassifier
from torch_geometric_gsl.transforms.feature_graphs import nearest_neighbours

EDGES_AND_BATCH = {'edge_index', 'edge_weight', 'batch'}
CACHING = ['KNNGCN', 'KNNLINKX', 'IDGL', 'IDGLAnchor']
# What the forward pass of each model takes, beside the features and a generator.
TAKES = {name: {'batch'} for name in BASELINES}
TAKES |= dict.fromkeys(CACHING, EDGES_AND_BATCH)
EACH = pytest.mark.parametrize('name', BASELINES)
# KNNLINKX has weights for each node of one data set.
OF_ANY_SIZE = pytest.mark.parametrize('name', sorted({*BASELINES} - {'KNNLINKX'}))
LAYOUTS = pytest.mark.parametrize('layout', ['dense', 'sparse'])
TRAINING = pytest.mark.parametrize('training', [True, False])
BATCH = torch.arange(N) // (N // 2)
Y, MASK = torch.arange(N) % OUT, torch.arange(N) % 2 == 0
# Each node has two neighbours in its own graph.
TARGET = torch.arange(N).repeat(2)
STEP = torch.tensor([1, 2]).repeat_interleave(N)
EDGES = torch.stack([(TARGET + STEP) % (N // 2) + BATCH[TARGET] * (N // 2), TARGET])


def make(name, **options):
    torch.manual_seed(1)
    return make_baseline(name, **options)


def calls(model):
    """All that takes the arguments of the forward pass, from the second one on."""
    x = features()
    names = 'forward', 'graphs', 'denoising_loss', 'contrastive_loss'
    plain = [getattr(model, name) for name in names if hasattr(model, name)]
    names = 'loss', 'homophily_loss'
    labelled = [getattr(model, name) for name in names if hasattr(model, name)]
    return [
        *(partial(method, x) for method in plain),
        *(partial(method, x, Y, MASK) for method in labelled),
    ]


def test_every_model_is_covered():
    assert {*BASELINES} == {*baselines.__all__}
    assert all(isinstance(make(name), NodeClassifier) for name in BASELINES)


@EACH
def test_a_model_takes_what_it_serves(name):
    model = make(name)
    parameters = inspect.signature(model.forward).parameters
    assert {*parameters} == {'x', 'generator', *TAKES[name]}
    # Edges and their weights stand where PyG has them; others go by their names.
    last = inspect.Parameter.KEYWORD_ONLY
    places = [key for key, value in parameters.items() if value.kind != last]
    takes_edges = 'edge_index' in TAKES[name]
    in_order = ['x', 'edge_index', 'edge_weight', 'batch']
    assert places == (in_order if takes_edges else ['x'])
    declared, common = (
        [(p.name, p.kind, p.default) for p in inspect.signature(f).parameters.values()]
        for f in (type(model).loss, NodeClassifier.loss)
    )
    assert declared == common
    for call in calls(model):
        for key in {'edge_index', 'batch', 'z'} - TAKES[name]:
            with pytest.raises(TypeError, match=f"unexpected keyword argument '{key}'"):
                call(**{key: BATCH})


@EACH
def test_layouts_agree(name):
    model, x = make(name).double().eval(), features().double().relu()
    expected = model(x)
    torch.testing.assert_close(model(x.to_sparse_csr()), expected)
    torch.testing.assert_close(model(x.t().contiguous().t()), expected)


@pytest.mark.parametrize('name', CACHING)
def test_given_edges_and_their_weights(name):
    model, x = make(name).double().eval(), features().double()
    edges = torch.randint(N, (2, 40), generator=seeded(1))
    weight = torch.rand(40, generator=seeded(2)).double()
    plain, expected = model(x, edges), model(x, edges, weight)
    assert torch.equal(model(x, EdgeIndex(edges)), plain)
    torch.testing.assert_close(model(x, edges, torch.ones_like(weight)), plain)
    assert not torch.allclose(expected, plain)
    # Weights of another type, such as those that NumPy computes.
    single = copy.deepcopy(model).float()(x.float(), edges, weight)
    torch.testing.assert_close(single.double(), expected, rtol=1e-4, atol=1e-5)
    keep = edges[0] > 1
    expected = model(x, edges[:, keep], weight[keep])
    torch.testing.assert_close(model(x, edges, weight * keep), expected)


@OF_ANY_SIZE
@LAYOUTS
def test_a_batch_is_its_graphs(name, layout):
    options = {'num_anchors': N} if name == 'IDGLAnchor' else {}
    model, x = make(name, **options).double().eval(), features().double().relu()
    # Two of the graphs have fewer nodes than neighbours, and one number has no graph.
    batch = torch.tensor([0] * 2 + [2] + [3] * 9)
    outs = [model(as_layout(rows, layout)) for rows in (x[:2], x[2:3], x[3:])]
    out = model(as_layout(x, layout), batch=batch)
    torch.testing.assert_close(out, torch.cat(outs))


@pytest.mark.parametrize('name', CACHING)
@LAYOUTS
def test_the_cached_graph(name, layout):
    x, flipped = as_layout(features(), layout), as_layout(features().flip(1), layout)
    with mock.patch.object(
        knn_gcn, 'nearest_neighbours', wraps=nearest_neighbours
    ) as search:
        model = make(name, cached=True).eval()
        # What inference finds can be trained on.
        with torch.inference_mode():
            expected = model(x)
        out = model(x)
        out.sum().backward()
        torch.testing.assert_close(out, expected)
        if name != 'KNNGCN':  # Other features, on the graph of the first.
            plain = make(name).eval()(flipped, nearest_neighbours(x, 2).edge_index)
            torch.testing.assert_close(model(flipped), plain)
        assert torch.equal(copy.deepcopy(model)(x), expected)
        # It goes with the model, but not with its state.
        double = copy.deepcopy(model).double()(as_layout(features().double(), layout))
        torch.testing.assert_close(double.float(), expected, rtol=1e-3, atol=1e-4)
        assert '_cached_weight' not in model.state_dict()
        assert search.call_count == 1
        # KNNLINKX has weights for each of the nodes as well.
        with pytest.raises(ValueError, match=r'12 (nodes of the cached|rows).*got 9'):
            model(as_layout(features()[:9], layout))
        model.reset_parameters()
        model(flipped)
        assert search.call_count == 2


@pytest.mark.parametrize('name', CACHING)
@pytest.mark.parametrize('batch', [None, BATCH])
def test_the_batch_of_the_cached_graph(name, batch):
    model, x, one_graph = make(name, cached=True), features(), torch.zeros(N).long()
    model(x, batch=batch)
    model(x, batch=one_graph if batch is None else batch.clone())
    match = r"'batch' must be that of the cached .* \(got another graph for 6 of 12 no"
    for wrong in [BATCH] if batch is None else [None, one_graph]:
        with pytest.raises(ValueError, match=match):
            model(x, batch=wrong)
    with pytest.raises(ValueError, match="'batch' must have one entry per node"):
        model(x, batch=BATCH[:6])
    model.reset_parameters()
    model(x, batch=wrong)


@OF_ANY_SIZE
@TRAINING
@LAYOUTS
def test_no_nodes(name, layout, training):
    model, x = make(name).train(training), as_layout(features()[:0], layout)
    cases = [{}, {'batch': BATCH[:0]}, {'edge_index': EDGES[:, :0]}]
    for kwargs in cases:
        if not TAKES[name].issuperset(kwargs):
            continue
        out = model(x, **kwargs)
        assert out.shape == (0, OUT)
        out.sum().backward()
        with pytest.raises(ValueError, match="'mask' must select at least one node"):
            model.loss(x, BATCH[:0], BATCH[:0] == 0, **kwargs)
        for method in ('denoising_loss', 'contrastive_loss'):
            if hasattr(model, method):
                assert float(getattr(model, method)(x, **kwargs).detach()) == 0
        if hasattr(model, 'graphs'):
            assert all(graph.edge_weight.numel() == 0 for graph in model.graphs(x))


@EACH
@TRAINING
def test_all_that_is_random_comes_from_the_generator(name, training):
    model = make(name).train(training)

    def results(seed, global_seed):
        torch.manual_seed(global_seed)
        state = torch.get_rng_state()
        numbers = []
        for call in calls(copy.deepcopy(model)):
            numbers += flat(call(generator=seeded(seed)))
        assert torch.equal(torch.get_rng_state(), state)
        return numbers

    for call in calls(model):
        with pytest.raises(TypeError, match=r"'generator' must be a torch\.Gen"):
            call(generator=3)
    numbers = results(1, global_seed=0)
    assert numbers == results(1, global_seed=5)
    if training:
        assert numbers != results(2, global_seed=0)


def flat(result):
    """The numbers of an output, of a loss, or of graphs."""
    is_one = isinstance(result, torch.Tensor)
    tensors = [result] if is_one else [tensor for graph in result for tensor in graph]
    return [tensor.tolist() for tensor in tensors]
