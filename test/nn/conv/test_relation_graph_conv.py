"""The layer of one relation, against a sampler over both types and a product."""

import copy

import pytest
import torch
from oracles import check_gradients, seeded, to_matrix
from sampling import normal

from torch_geometric_gsl import GumbelKNNSampler
from torch_geometric_gsl.nn.conv.relation_graph_conv import RelationGraphConv
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity

S_IN, T_IN, OUT, K, TAU = 5, 6, 4, 3, 0.4
SOURCES, TARGETS = normal(9, S_IN, seed=1), normal(12, T_IN, seed=2)
S_ROWS, T_ROWS = normal(9, 2, seed=3), normal(12, 2, seed=4)
TRAINING = pytest.mark.parametrize('training', [True, False])
MODES = {
    'projected': {},
    'linear': {'similarity': 'linear', 'scale': 3.0},
    'input': {'compare': 'input'},
    'embedding': {'compare': 'embedding', 'embedding_channels': 2},
}
EACH = pytest.mark.parametrize('mode', MODES)


def make(mode='projected', in_channels=None, **options):
    torch.manual_seed(5)
    pair = (S_IN, S_IN if mode == 'input' else T_IN)
    options = {'k': K, 'tau': TAU, **MODES[mode], **options}
    return RelationGraphConv(in_channels or pair, OUT, **options).double()


def call(mode):
    """Return the targets, and what else the layer is called with."""
    x = TARGETS[:, :S_IN] if mode == 'input' else TARGETS
    given = {'context': SOURCES}
    if mode == 'embedding':
        given['embedding'] = S_ROWS, T_ROWS
    return x, given


def plain_graph(conv, mode, x, seed):
    """Draw the graph by a sampler of its own, as a matrix [targets, sources]."""
    compared = {
        'input': (SOURCES, x),
        'embedding': (S_ROWS, T_ROWS),
    }.get(mode)
    if compared is None:
        projected = conv.lin.weight.t(), conv.lin_target.weight.t()
        compared = SOURCES @ projected[0], x @ projected[1]
    name = MODES[mode].get('similarity', 'neural_gaussian')
    similarity = resolve_similarity(name, compared[0].size(1)).double()
    similarity.load_state_dict(conv.sampler.similarity.state_dict())
    options = {'scale': MODES[mode].get('scale', 1.0), 'method': 'dense'}
    sampler = GumbelKNNSampler(similarity, K, TAU, **options).train(conv.training)
    return to_matrix(*sampler(compared, generator=seeded(seed)), 12, 9)


@EACH
@TRAINING
def test_the_definition(mode, training):
    conv = make(mode, method='dense').train(training)
    x, given = call(mode)
    matrix = plain_graph(conv, mode, x, seed=7)
    torch.testing.assert_close(matrix.sum(dim=1), torch.ones(12).double())
    out = conv(x, **given, generator=seeded(7))
    torch.testing.assert_close(out, matrix @ SOURCES @ conv.lin.weight.t())
    graph = conv.graph(x, **given, generator=seeded(7))
    torch.testing.assert_close(to_matrix(*graph, 12, 9), matrix)
    assert conv.plan(x, **given).method == 'dense'


def test_it_has_neither_a_root_nor_a_bias():
    names = {name for name, _ in make().named_parameters()}
    sampler = {f'sampler.similarity.{name}' for name in ('w_b', 'w_c')}
    assert names == {'lin.weight', 'lin_target.weight'} | sampler
    # What is not compared is not projected.
    for mode in ('input', 'embedding'):
        assert make(mode).lin_target is None


@EACH
@TRAINING
def test_gradients(mode, training):
    conv = make(mode).train(training)
    x, given = call(mode)
    x = x.clone().requires_grad_()
    given['context'] = given['context'].clone().requires_grad_()
    conv(x, **given).square().sum().backward()
    check_gradients(conv)
    assert bool(given['context'].grad.any(dim=1).all())
    if mode == 'embedding':
        assert x.grad is None  # Their embedding alone counts.
    else:
        assert bool(x.grad.any(dim=1).all())


def test_gradients_by_differences():
    conv = make(method='dense').eval()
    names = ('lin.weight', 'lin_target.weight')
    weights = [conv.get_parameter(name).detach().requires_grad_() for name in names]

    def run(x, context, *weights):
        state = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(conv, state, (x,), {'context': context})

    given = [value.clone().requires_grad_() for value in (TARGETS, SOURCES)]
    assert torch.autograd.gradcheck(run, (*given, *weights))


def test_permutations_of_both_types():
    conv = make().eval()
    targets, sources = (torch.randperm(n, generator=seeded()) for n in (12, 9))
    moved = conv(TARGETS[targets], context=SOURCES[sources])
    torch.testing.assert_close(moved, conv(TARGETS, context=SOURCES)[targets])


def test_candidates_and_batches():
    conv = make(method='dense').eval()
    edges = torch.tensor([[0, 1, 8, 2], [0, 0, 3, 11]])
    graph = conv.graph(TARGETS, edges, context=SOURCES)
    assert torch.equal(graph.edge_index, edges)
    out = conv(TARGETS, edges, context=SOURCES)
    matrix = to_matrix(*graph, 12, 9)
    torch.testing.assert_close(out, matrix @ SOURCES @ conv.lin.weight.t())
    assert not out[[1, 2, *range(4, 11)]].any()  # Without candidates, no messages.
    batch = torch.arange(9) // 5, torch.arange(12) // 6
    together = conv(TARGETS, batch=batch, context=SOURCES)
    first = conv(TARGETS[:6], context=SOURCES[:5])
    second = conv(TARGETS[6:], context=SOURCES[5:])
    torch.testing.assert_close(together, torch.cat([first, second]))


def test_an_observed_prior():
    conv = make(observed='prior', method='dense').eval()
    with torch.no_grad():
        conv.prior.logit.fill_(1.0)
    share = torch.tensor(1.0).double().sigmoid()
    edges = torch.tensor([[0, 8], [3, 3]])
    out = conv(TARGETS, edges, context=SOURCES)
    expected = conv(TARGETS, context=SOURCES)
    given = (SOURCES[0] + SOURCES[8]) / 2 @ conv.lin.weight.t()
    expected[3] = share * given + (1 - share) * expected[3]
    torch.testing.assert_close(out, expected)


@TRAINING
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_dtypes(dtype, training):
    conv = make(method='dense').to(dtype).train(training)
    out = conv(TARGETS.to(dtype), context=SOURCES.to(dtype))
    assert out.dtype == dtype
    if not training and dtype == torch.float32:
        exact = make(method='dense').eval()(TARGETS, context=SOURCES)
        torch.testing.assert_close(out.double(), exact, rtol=1e-4, atol=1e-5)


def test_sparse_rows():
    conv = make().eval()
    x, context = TARGETS * (TARGETS > 0), SOURCES * (SOURCES > 0)
    found = conv(x.to_sparse_csr(), context=context.to_sparse_csr())
    torch.testing.assert_close(found, conv(x, context=context))


def test_no_targets():
    out = make()(TARGETS[:0], context=SOURCES)
    assert out.shape == (0, OUT)


def test_seeds():
    conv = make()
    one, same, other = (
        conv(TARGETS, context=SOURCES, generator=seeded(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_lazy_sizes():
    x, context = TARGETS.float(), SOURCES.float()
    conv = RelationGraphConv((-1, -1), OUT)
    assert conv(x, context=context).shape == (12, OUT)
    assert conv.lin.weight.shape == (OUT, S_IN)
    assert conv.lin_target.weight.shape == (OUT, T_IN)
    again = RelationGraphConv((-1, T_IN), OUT)
    again.load_state_dict(conv.state_dict())
    conv.eval()
    assert torch.equal(again.eval()(x, context=context), conv(x, context=context))


@EACH
def test_state_dict_and_reset(mode):
    conv = make(mode).eval()
    x, given = call(mode)
    twin = copy.deepcopy(conv)
    twin.reset_parameters()
    for name, value in twin.named_parameters():
        assert not torch.equal(value, conv.get_parameter(name)), name
    assert not torch.equal(twin(x, **given), conv(x, **given))
    twin.load_state_dict(conv.state_dict())
    assert torch.equal(twin(x, **given), conv(x, **given))


def test_repr():
    assert str(RelationGraphConv((16, 8), 32, k=2)) == (
        'RelationGraphConv((16, 8), 32, '
        'similarity=NeuralGaussianSimilarity(32, c_scale=0.1), k=2, tau=0.25)'
    )


@pytest.mark.parametrize(
    ('in_channels', 'options', 'text'),
    [
        (
            (5, 6),
            {'compare': 'input'},
            r"'in_channels' must be equal for both types with compare='input' "
            r'\(got 5 and 6\)',
        ),
        (
            (-1, -1),
            {'compare': 'input'},
            r"'in_channels' must be known with compare='input' \(got -1\)",
        ),
        ((0, 6), {}, r"'in_channels' must be at least 1 \(got 0\)"),
        ((5, 6), {'compare': 'x'}, r"'compare' must be one of .* \(got 'x'\)"),
    ],
)
def test_bad_options(in_channels, options, text):
    with pytest.raises(ValueError, match=text):
        RelationGraphConv(in_channels, OUT, **options)


@pytest.mark.parametrize(
    ('given', 'text'),
    [
        ({'x': SOURCES}, r"'x' must have 6 channels \(got 5\)"),
        ({'context': TARGETS}, r"'context' must have 5 channels \(got 6\)"),
        ({'x': TARGETS / 0}, r"'x' contains NaN or infinite values"),
        ({'context': SOURCES / 0}, r"'context' contains NaN or infinite values"),
    ],
)
def test_bad_calls(given, text):
    with pytest.raises(ValueError, match=text):
        make()(**({'x': TARGETS, 'context': SOURCES} | given))


def test_targets_that_are_not_projected_are_of_any_width():
    conv = make('embedding').eval()
    x, given = call('embedding')
    assert torch.equal(conv(x, **given), conv(x[:, :2], **given))
