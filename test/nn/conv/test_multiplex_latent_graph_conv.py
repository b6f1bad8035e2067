"""Several relations of one layer, against a loop over their samplers."""

import pytest
import torch
from oracles import seeded, to_matrix
from sampling import normal

from torch_geometric_gsl import (
    CosineSimilarity,
    DirectedSimilarity,
    LinearSimilarity,
    MultiplexLatentGraphConv,
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.nn.conv.multiplex_latent_graph_conv import (
    begin_apart,
    check_apart,
)

N, IN, OUT, K, R = 12, 6, 4, 3, 3
EDGES = torch.stack([torch.arange(N).repeat(5), torch.randperm(5 * N) % N])
BELL = {
    'similarity': 'neural_gaussian',
    'similarity_kwargs': {'bias': True, 'centre': 'tanh'},
}
TRAINING = pytest.mark.parametrize('training', [True, False])
MESSAGES = pytest.mark.parametrize('same_messages', [True, False])
OPTIONS = {
    'plain': {},
    'node': {'shares': 'node'},
    'own messages': {'same_messages': False},
    'no root': {'root_weight': False, 'bias': False},
    'null': {'null_score': 0.0, 'scale': 3.0, 'train_scale': True},
    'input': {'z_channels': -1, **BELL},
    'rows': {'z_channels': 2},
}
EACH = pytest.mark.parametrize('name', OPTIONS)


def make(num_relations=R, dtype=torch.double, **options):
    """Return a layer whose parameters have left their beginning."""
    torch.manual_seed(5)
    options = {'k': K, 'tau': 0.4, 'scale': 1.5, **options}
    conv = MultiplexLatentGraphConv(IN, OUT, num_relations, **options)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter += torch.randn_like(parameter) / 3
    return conv.to(dtype)


def given(name, rows=N):
    return {'z': normal(rows, 2, seed=8)} if name == 'rows' else {}


def by_loop(conv, x, generator=None, z=None, **kwargs):
    """Return the output and the graphs, by samplers that are called in turn."""
    shares = conv.shares(x).expand(x.size(0), -1)
    total, graphs = torch.zeros(x.size(0), OUT, dtype=x.dtype), []
    for number, relation in enumerate(conv.relations):
        h = x @ relation.lin.weight.t()
        own = h if relation.z_channels is None else x
        graph = relation.sampler(own if z is None else z, generator=generator, **kwargs)
        out = to_matrix(*graph, x.size(0), x.size(0)) @ h
        total = total + shares[:, number : number + 1] * out
        graphs.append(graph)
    if conv.lin_root is not None:
        total = total + x @ conv.lin_root.weight.t()
    return (total if conv.bias is None else total + conv.bias), graphs


@EACH
@TRAINING
@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_a_loop_over_samplers(name, method, training):
    conv, x = make(method=method, **OPTIONS[name]).train(training), normal(N, IN)
    out = conv(x, generator=seeded(2), **given(name))
    expected, graphs = by_loop(conv, x, seeded(2), **given(name))
    torch.testing.assert_close(out, expected)
    found = conv.graphs(x, generator=seeded(2), **given(name))
    assert len(found) == R
    for graph, other in zip(found, graphs, strict=True):
        assert torch.equal(graph.edge_index, other.edge_index)
        assert torch.equal(graph.edge_weight, other.edge_weight)


@EACH
@TRAINING
def test_the_mixture_of_graphs(name, training):
    conv, x = make(**OPTIONS[name]).train(training), normal(N, IN)
    mixed = conv.graph(x, generator=seeded(2), **given(name))
    graphs = conv.graphs(x, generator=seeded(2), **given(name))
    shares = conv.shares(x).expand(N, -1)
    expected = sum(
        shares[:, number : number + 1] * to_matrix(*graph, N, N)
        for number, graph in enumerate(graphs)
    )
    torch.testing.assert_close(to_matrix(*mixed, N, N), expected)
    key = mixed.edge_index[1] * N + mixed.edge_index[0]
    assert bool((key.diff() > 0).all())  # Sorted by target, no duplicates.
    if name != 'null':
        torch.testing.assert_close(expected.sum(dim=1), torch.ones(N).double())
    if training and name in ('plain', 'node'):
        # With equal messages it is the graph along which the layer sums.
        h = x @ conv.relations[0].lin.weight.t()
        out = to_matrix(*mixed, N, N) @ h + x @ conv.lin_root.weight.t() + conv.bias
        torch.testing.assert_close(conv(x, generator=seeded(2)), out)


@MESSAGES
def test_relations_begin_apart_and_stay_so(same_messages):
    torch.manual_seed(0)
    options = {**BELL, 'same_messages': same_messages}
    conv = MultiplexLatentGraphConv(IN, OUT, 2, k=K, **options)
    centres = [centre(relation.sampler.similarity) for relation in conv.relations]
    assert centres == pytest.approx([-0.5, 0.5])
    x = normal(N, IN, dtype=torch.float32)
    conv(x).square().sum().backward()
    first, second = (r.sampler.similarity.bias_b.grad for r in conv.relations)
    assert not torch.allclose(first, second)
    lins = {id(relation.lin) for relation in conv.relations}
    assert len(lins) == (1 if same_messages else 2)


def test_samplers_of_as_many_relations_are_shared():
    first, second, third = (
        MultiplexLatentGraphConv(IN, OUT, count, k=K, **BELL) for count in (2, 2, 3)
    )
    second.share_sampler(first)
    for own, other in zip(second.relations, first.relations, strict=True):
        assert own.sampler is other.sampler
    with pytest.raises(ValueError, match=r"'other' must have 2 relations \(got 3\)"):
        second.share_sampler(third)


@pytest.mark.parametrize('kind', ['global', 'node'])
def test_shares(kind):
    x = normal(N, IN)
    fresh = MultiplexLatentGraphConv(IN, OUT, R, shares=kind).double()
    assert torch.allclose(fresh.shares(x), torch.tensor(1 / R).double())
    conv = make(shares=kind)
    if kind == 'node':
        power = (x @ conv.mixture.lin.weight.t() + conv.mixture.lin.bias).exp()
        expected = power / power.sum(dim=1, keepdim=True)
    else:
        expected = conv.mixture.logits.exp() / conv.mixture.logits.exp().sum()
    torch.testing.assert_close(conv.shares(x), expected)
    sparse = x.relu().to_sparse_csr()
    torch.testing.assert_close(conv.shares(sparse), conv.shares(x.relu()))


@EACH
@pytest.mark.parametrize('is_new', [False, True])
def test_equal_messages_are_projected_once(name, is_new):
    conv, x = make(**OPTIONS[name]), normal(N, IN)
    calls, args = [], given(name)
    for lin in {relation.lin for relation in conv.relations}:
        lin.register_forward_pre_hook(lambda _, rows: calls.append(len(rows[0])))
    if is_new:
        x, args = (x, x[:5]), {key: (z, z[:5]) for key, z in args.items()}
    conv(x, **args)
    times = R if name == 'own messages' else 1
    # What is not compared is not projected, unless it is a message of its own.
    targets = is_new and name not in ('input', 'rows')
    assert sorted(calls) == [5] * (times * targets) + [N] * times


def test_similarities_of_several_kinds():
    given = ['linear', NeuralGaussianSimilarity(OUT)]
    conv = MultiplexLatentGraphConv(IN, OUT, 2, given)
    kinds = [type(relation.sampler.similarity) for relation in conv.relations]
    assert kinds == [LinearSimilarity, NeuralGaussianSimilarity]
    options = [{'b': 0.2}, {'b': 0.8}]
    conv = MultiplexLatentGraphConv(
        IN, OUT, 2, 'gaussian', z_channels=-1, similarity_kwargs=options
    )
    assert [r.sampler.similarity.b for r in conv.relations] == [0.2, 0.8]


def centre(similarity):
    return float(similarity.response(torch.zeros(1, OUT)).params[0].detach())


@pytest.mark.parametrize(
    ('kind', 'expected'),
    [('sigmoid', [1 / 6, 1 / 2, 5 / 6]), ('tanh', [-2 / 3, 0.0, 2 / 3])],
)
@pytest.mark.parametrize('is_directed', [False, True])
def test_bells_with_a_bias_begin_at_even_steps(is_directed, kind, expected):
    bells = [NeuralGaussianSimilarity(OUT, bias=True, centre=kind) for _ in range(3)]
    begin_apart(
        [bells[0], *map(DirectedSimilarity, bells[1:])] if is_directed else bells
    )
    assert [centre(bell) for bell in bells] == pytest.approx(expected, abs=1e-6)
    assert all(bell.w_b.tolist() == [[0.0] * OUT] for bell in bells)


def test_what_begins_at_random_or_alone_is_left_alone():
    kinds = [NeuralGaussianSimilarity(3), CosineSimilarity(3), LinearSimilarity(3)]
    single = NeuralGaussianSimilarity(3, bias=True, feature_weights=True)
    both = torch.nn.ModuleList([*kinds, single])
    before = {key: value.clone() for key, value in both.state_dict().items()}
    begin_apart(kinds)
    begin_apart([single])
    for key, value in both.state_dict().items():
        assert torch.equal(value, before[key])


def test_weights_of_features_begin_with_noise():
    torch.manual_seed(0)
    pair = [LinearSimilarity(500, feature_weights=True) for _ in range(2)]
    begin_apart([pair[0], DirectedSimilarity(pair[1])])
    for similarity in pair:
        weight = similarity.feature_weight.detach()
        assert abs(float(weight.mean()) - 1) < 5 * 0.1 / 500**0.5
        assert 0.08 < float(weight.std()) < 0.12
    assert not torch.equal(pair[0].feature_weight, pair[1].feature_weight)


def test_one_module_for_two_relations():
    similarity = LinearSimilarity(OUT, feature_weights=True)
    directed = [DirectedSimilarity(similarity) for _ in range(2)]
    for same in ([similarity, similarity], directed):
        with pytest.raises(ValueError, match="'similarity' must have a separate"):
            check_apart(same)


def test_bad_input():
    # Equal similarities of projections that differ are no mistake.
    MultiplexLatentGraphConv(IN, OUT, 2, 'linear', same_messages=False)
    x = normal(N, IN)
    node = make(shares='node')
    with pytest.raises(TypeError, match=r"'x' must be a torch.Tensor \(got NoneType"):
        node.shares()
    with pytest.raises(ValueError, match=r"'x' must have 6 channels \(got 5\)"):
        node.shares(x[:, 1:])
