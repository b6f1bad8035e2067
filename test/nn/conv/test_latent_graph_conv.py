"""Both layers: their formula, number by number, and what they have in common."""

import math
from functools import partial

import pytest
import torch
from oracles import inner, noise_of, relaxed, seeded, sigmoid, softmax, to_matrix, unit
from sampling import limits, normal

from torch_geometric_gsl import Budget
from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.transition_graph_conv import TransitionGraphConv
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity

N, S, IN, OUT, K, TAU, SCALE = 7, 6, 11, 4, 3, 0.4, 1.5
# A graph of all nodes, or that of transition nodes in each of their forms.
KINDS = pytest.mark.parametrize('kind', ['full', 'projected', 'free', 'anchors'])
features = partial(normal, N, IN)
TRAINING = pytest.mark.parametrize('training', [True, False])


def build(kind, *args, in_channels=IN, **kwargs):
    if kind == 'full':
        return LatentGraphConv(in_channels, OUT, *args, **kwargs)
    num_nodes = N if kind == 'projected' else None
    size = in_channels, OUT, num_nodes, S
    conv = TransitionGraphConv(*size, *args, transition=kind, **kwargs)
    return conv.choose_anchors(normal(S, IN, seed=9)) if kind == 'anchors' else conv


def make(kind, **kwargs):
    torch.manual_seed(5)
    kwargs = {'k': K, 'tau': TAU, 'scale': SCALE, **kwargs}
    kwargs['budget'] = limits(kwargs.get('method'), kwargs, arrivals=N)
    conv = build(kind, **kwargs).double()
    if conv.bias is not None:
        torch.nn.init.normal_(conv.bias)
    return conv


def test_repr():
    assert str(LatentGraphConv(16, 32)) == (
        'LatentGraphConv(16, 32, similarity=NeuralGaussianSimilarity(32, '
        'c_scale=0.1), k=5, tau=0.25)'
    )
    assert str(LatentGraphConv(-1, 8, 'linear', k=2, tau=1.0)) == (
        'LatentGraphConv(-1, 8, similarity=LinearSimilarity(8), k=2, tau=1.0)'
    )
    assert str(LatentGraphConv(8, 8, 'linear', null_score=0.0, observed='prior')) == (
        'LatentGraphConv(8, 8, similarity=LinearSimilarity(8), k=5, tau=0.25, '
        "null_score=0.0, observed='prior')"
    )
    with pytest.raises(ValueError, match=r"'out_channels' must be at least 1 \(got 0"):
        LatentGraphConv(4, 0)


def product(a, b):
    columns = [list(column) for column in zip(*b, strict=True)]
    return [[inner(row, column) for column in columns] for row in a]


def weights(conv, x, seed):
    """Return the graph, number by number; a seed replays the noise of training."""
    z = [unit(row) for row in product(x.tolist(), conv.lin.weight.t().tolist())]
    similarity = conv.sampler.similarity
    (w_b,), (w_c,) = similarity.w_b.tolist(), similarity.w_c.tolist()
    sources = [unit(row) for row in nodes(conv, z)]
    score = []
    for row in z:
        b, c = sigmoid(inner(row, w_b)), 0.1 * sigmoid(inner(row, w_c))
        bells = [math.exp(-((inner(row, other) - b) ** 2) / c) for other in sources]
        score.append([SCALE * bell for bell in bells])
    if seed is not None:
        values = torch.tensor(score, dtype=torch.double)
        noise = noise_of(conv.sampler.method, seed, values, K, N)
        return relaxed(values, noise, TAU)
    rows = [softmax([value / TAU for value in row]) for row in score]
    return torch.tensor(rows, dtype=torch.double)


def nodes(conv, z):
    """Return the places of the sources."""
    form = getattr(conv, 'transition', 'full')
    if form == 'projected':
        return product(conv.w_t.tolist(), z)
    if form == 'anchors':
        return product(conv.anchors.tolist(), conv.lin.weight.t().tolist())
    return z if form == 'full' else conv.transition_nodes.tolist()


def messages_of(conv, h):
    """Return what the sources send."""
    form = getattr(conv, 'transition', 'full')
    if form == 'projected':
        return conv.w_e @ h
    if form == 'anchors':
        return conv.anchors @ conv.lin.weight.t()
    return h if form == 'full' else conv.messages


def oracle(conv, x, seed):
    h = x @ conv.lin.weight.t()
    messages = messages_of(conv, h)
    out = weights(conv, x, seed) @ messages
    if conv.add_self_loops:
        out = 0.5 * out + 0.5 * h
    if conv.lin_root is not None:
        out = out + x @ conv.lin_root.weight.t()
    return (out if conv.bias is None else out + conv.bias).detach()


@pytest.mark.parametrize('seed', [None, 7])
@pytest.mark.parametrize('method', ['dense', 'stream'])
@pytest.mark.parametrize('root_weight', [True, False])
@pytest.mark.parametrize('add_self_loops', [True, False])
@pytest.mark.parametrize('bias', [True, False])
@KINDS
def test_formula(kind, root_weight, add_self_loops, bias, method, seed):
    flags = {'root_weight': root_weight, 'add_self_loops': add_self_loops}
    conv = make(kind, **flags, bias=bias, method=method)
    conv.train(seed is not None)
    names = {name for name, _ in conv.named_parameters()}
    assert ('bias' in names) == bias
    assert ('lin_root.weight' in names) == root_weight
    generator = None if seed is None else seeded(seed)
    out = conv(features(), generator=generator)
    assert out.shape == (N, OUT)
    expected = oracle(conv, features(), seed)
    torch.testing.assert_close(out.detach(), expected, rtol=1e-9, atol=1e-12)


def step(conv, x):
    out = conv(x, generator=seeded(2))
    out.square().sum().backward()
    return [out.detach(), *(p.grad for p in conv.parameters())]


@TRAINING
@KINDS
def test_sparse_features(kind, training):
    x = features() * (features(seed=4) > 0)
    sparse = x.to_sparse_csr()
    dense, other = (step(make(kind).train(training), own) for own in (x, sparse))
    torch.testing.assert_close(other, dense)
    conv = make(kind)
    graph, expected = (conv.graph(own, generator=seeded(2)) for own in (sparse, x))
    assert torch.equal(graph.edge_index, expected.edge_index)


@TRAINING
@KINDS
def test_lazy_channels(kind, training):
    conv, x = build(kind, in_channels=-1).train(training), features().float()
    assert conv(x).shape == (N, OUT)
    assert conv.lin.weight.shape == conv.lin_root.weight.shape == (OUT, IN)
    conv.reset_parameters()
    assert conv(x).shape == (N, OUT)
    with pytest.raises(ValueError, match=r"'x' must have 11 channels \(got 3\)"):
        conv(x[:, :3])


@TRAINING
@KINDS
def test_graph(kind, training):
    conv, x = make(kind, method='dense').train(training), features()
    graph = conv.graph(x, generator=seeded(2))
    size = N if kind == 'full' else S
    found = to_matrix(*graph, N, size).detach()
    expected = weights(conv, x, 2 if training else None)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('in_channels', [-1, IN])
@pytest.mark.parametrize('autocast', [False, True])
@KINDS
def test_double_precision_is_refused(kind, in_channels, autocast):
    conv = build(kind, in_channels=in_channels)
    with (
        torch.autocast('cpu', dtype=torch.bfloat16, enabled=autocast),
        pytest.raises(TypeError, match=r"'x' has torch\.float64 but the par"),
    ):
        conv(features())


@pytest.mark.parametrize(
    ('error', 'args', 'kwargs', 'match'),
    [
        (ValueError, (), {'in_channels': 0}, r"'in_channels' must be at least 1 \(got"),
        (ValueError, (), {'in_channels': -2}, r"'in_channels' must .* \(got -2\)"),
        (ValueError, ('bell',), {}, r"'similarity' must be one of .* 'bell'"),
        (TypeError, (), {'add_self_loops': 1}, r"'add_self_loops' must be a bool"),
        (TypeError, (), {'heads': 2}, "has no option 'heads'"),
    ],
)
@KINDS
def test_bad_arguments(kind, error, args, kwargs, match):
    with pytest.raises(error, match=match):
        build(kind, *args, **kwargs)


@pytest.mark.parametrize(
    ('error', 'x', 'match', 'k'),
    [
        (TypeError, None, r"'x' must be a torch.Tensor \(got NoneType\)", K),
        (ValueError, features()[:, 1:], r"'x' must have 11 channels \(got 10", K),
        (TypeError, features().float(), "'x' has torch.float32 but the para", K),
        (ValueError, features() / 0, "'x' contains NaN or infinite values", K),
        (ValueError, features(), r'candidates \(got k=8 for [67] candidates\)', None),
    ],
)
@KINDS
def test_bad_input(kind, error, x, match, k):
    options = {'k': N + 1, 'replace': False} if k is None else {'k': k}
    for call in (make(kind, **options), make(kind, **options).graph):
        with pytest.raises(error, match=match):
            call(x)


@TRAINING
@pytest.mark.parametrize('width', [-1, 3])
def test_the_similarity_may_see_something_else(width, training):
    x, given = features(), {}
    if width == 3:
        given['z'] = normal(N, 3, seed=8)
    seen = given.get('z', x)
    conv = make('full', z_channels=width).train(training)
    assert conv.z_channels == seen.size(1)
    sampler = GumbelKNNSampler(
        conv.sampler.similarity, K, TAU, scale=SCALE, budget=Budget(arrivals=N)
    ).train(training)
    h = x @ conv.lin.weight.T
    expected = sampler.propagate(seen, h, generator=seeded(2))
    expected = expected + x @ conv.lin_root.weight.T + conv.bias
    torch.testing.assert_close(conv(x, **given, generator=seeded(2)), expected)
    graph = conv.graph(x, **given, generator=seeded(2))
    other = sampler(seen, generator=seeded(2))
    torch.testing.assert_close(graph.edge_weight, other.edge_weight)
    assert torch.equal(graph.edge_index, other.edge_index)


def test_other_rows_of_the_width_of_projections():
    # They are compared in place of projections, where no width is named as well.
    conv, x, z = make('full').eval(), features(), normal(N, OUT, seed=8)
    assert conv.z_channels is None
    twin = make('full', z_channels=OUT).eval()
    torch.testing.assert_close(conv(x, z=z), twin(x, z=z))
    pair, rows = (x, x[:2]), (z, z[:2])
    torch.testing.assert_close(conv(pair, z=rows), conv(x, z=z)[:2])


BAD_ROWS = normal(N, 3, seed=8)


@pytest.mark.parametrize(
    ('z', 'error', 'text'),
    [
        (None, ValueError, r"'z' must be given where 'x' has not z_channels=3 .*11"),
        (BAD_ROWS[:2], ValueError, r"'z' must have one row per node \(got 2 for 7"),
        (features()[:, :4], ValueError, r"'z' must have 3 channels \(got 4\)"),
        (BAD_ROWS / 0, ValueError, "'z' contains NaN"),
        (BAD_ROWS.long(), TypeError, "'z' must be floating-point"),
        ('rows', TypeError, r"'z' must be a torch.Tensor \(got str\)"),
        ((BAD_ROWS, BAD_ROWS), TypeError, r"'z' must be a tensor like 'x' \(got a tup"),
    ],
)
def test_compared_rows_that_are_wrong(z, error, text):
    conv, x = make('full', z_channels=3), features()
    with pytest.raises(error, match=text):
        conv(x, z=z)
    if isinstance(z, torch.Tensor):
        text = r"'z' must be a pair like 'x' \(got a Tensor\)"
        with pytest.raises(TypeError, match=text):
            conv((x, x), z=BAD_ROWS)


def test_widths_of_compared_rows_that_are_wrong():
    for width, match in ((0, r"'z_channels' must be at least 1 \(got 0\)"), (-2, '-2')):
        with pytest.raises(ValueError, match=match):
            build('full', z_channels=width)
    with pytest.raises(ValueError, match=r'one known width with z_channels=-1.* -1'):
        build('full', in_channels=-1, z_channels=-1)
    with pytest.raises(ValueError, match='expects 4 channels but it receives 11'):
        build('full', LinearSimilarity(OUT), z_channels=-1)
    with pytest.raises(TypeError, match="GraphConv has no option 'z_channels'"):
        build('projected', z_channels=3)
