"""Transition nodes that are free vectors or anchors: any rows, one at a time."""

import copy
import io
import warnings

import numpy as np
import pytest
import torch
from oracles import seeded
from sampling import limits, normal
from scipy import stats

from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.transition_graph_conv import TransitionGraphConv
from torch_geometric_gsl.nn.conv.transition_nodes import ProjectNodes
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES

S, IN, OUT = 6, 5, 4
FORMS = pytest.mark.parametrize('form', ['free', 'anchors'])
TRAINING = pytest.mark.parametrize('training', [True, False])
ERROR_RATE = 1e-4


def build(form, in_channels=IN, **kwargs):
    torch.manual_seed(5)
    return TransitionGraphConv(in_channels, OUT, None, S, transition=form, **kwargs)


def make(form, **kwargs):
    conv = build(form, **kwargs).double()
    return conv.choose_anchors(normal(S, IN, seed=9)) if form == 'anchors' else conv


def test_repr():
    assert str(TransitionGraphConv(16, 32, transition='free')) == (
        "TransitionGraphConv(16, 32, num_transition_nodes=500, transition='free', "
        'similarity=NeuralGaussianSimilarity(32, c_scale=0.1), k=5, tau=0.25)'
    )


def test_states_of_projections_are_as_they_were():
    names = {'bias', 'lin.weight', 'lin_root.weight', 'theta_t', 'theta_e'}
    names |= {'sampler.similarity.w_b', 'sampler.similarity.w_c'}
    assert set(TransitionGraphConv(IN, OUT, 7, S).state_dict()) == names


def test_parameters_of_the_forms():
    own = {name: p.shape for name, p in build('free').named_parameters()}
    assert own['transition_nodes'] == own['messages'] == (S, OUT)
    learned = {name for name, _ in build('anchors').named_parameters()}
    assert learned == {name for name, _ in LatentGraphConv(IN, OUT).named_parameters()}
    # Directions without a preferred one, about as long as unit rows.
    conv = TransitionGraphConv(IN, 64, None, 500, transition='free')
    for rows in (conv.transition_nodes, conv.messages):
        assert abs(float(rows.detach().norm(dim=1).mean()) - 1) < 0.02
        assert float(rows.detach().mean(dim=0).norm()) < 0.1


@FORMS
@pytest.mark.parametrize('similarity', SIMILARITIES)
@pytest.mark.parametrize('method', ['auto', 'dense', 'stream'])
def test_a_row_depends_on_no_other(form, similarity, method):
    conv = make(form, similarity=similarity, method=method, scale=3.0, k=3).eval()
    x = normal(40, IN)
    together = conv(x)
    for row in (0, 17, 39):
        torch.testing.assert_close(conv(x[row : row + 1])[0], together[row])
    other = torch.cat([x[:1], 1e3 * normal(7, IN, seed=3)])
    torch.testing.assert_close(conv(other)[0], together[0])
    assert conv(x[:0]).shape == (0, OUT)
    # Equal rows get equal outputs.
    torch.testing.assert_close(*conv(x[:1].repeat(2, 1)))


@pytest.mark.parametrize('similarity', SIMILARITIES)
@pytest.mark.parametrize('sparse', [False, True])
@TRAINING
def test_anchors_are_sources(similarity, training, sparse):
    conv = make('anchors', similarity=similarity, k=3).train(training)
    full = LatentGraphConv(IN, OUT, similarity=similarity, k=3).double().train(training)
    full.load_state_dict({k: v for k, v in conv.state_dict().items() if k != 'anchors'})
    x, sources = normal(9, IN).relu(), conv.anchors
    own = x.to_sparse_csr() if sparse else x
    found, expected = (
        call(own, generator=seeded(2))
        for call in (conv, lambda x, **given: full((sources, x), **given))
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    graph = conv.graph(own, generator=seeded(2))
    other = full.graph((sources, own), generator=seeded(2))
    assert torch.equal(graph.edge_index, other.edge_index)
    # Others may be given, as many as one likes.
    given = normal(9, IN, seed=4)
    found = conv((given, own), generator=seeded(2))
    expected = full((given, own), generator=seeded(2))
    torch.testing.assert_close(found, expected)


@FORMS
@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_gradients(form, method):
    budget = limits(method, arrivals=S)
    conv, x = make(form, method=method, k=2, budget=budget), normal(3, IN)
    names, values = zip(*conv.named_parameters(), strict=True)

    def call(x, *values):
        given = dict(zip(names, values, strict=True))
        return torch.func.functional_call(conv, given, x, {'generator': seeded(1)})

    leaves = [value.detach().clone().requires_grad_() for value in values]
    assert torch.autograd.gradcheck(call, (x.requires_grad_(), *leaves))


@FORMS
@TRAINING
def test_a_batch_costs_rows_times_transition_nodes(form, training, meter):
    size, s = 300, 40
    conv = TransitionGraphConv(IN, OUT, None, s, transition=form, method='dense')
    if form == 'anchors':
        conv.choose_anchors(torch.randn(20 * size, IN))
    x = torch.randn(size, IN)
    with meter() as found:
        conv.train(training)(x).square().sum().backward()
    assert found.largest <= conv.sampler.k * size * s
    assert all(20 * size not in shape for shape in found.shapes)


@FORMS
@TRAINING
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, 'autocast'])
def test_half_precision(form, dtype, training):
    conv = make(form).float().train(training)
    x = normal(30, IN).float()
    exact = conv(x, generator=seeded(1))
    if dtype == 'autocast':
        with torch.autocast('cpu', dtype=torch.bfloat16):
            out = conv(x, generator=seeded(1))
    else:
        out = conv.to(dtype)(x.to(dtype), generator=seeded(1))
        assert out.dtype == dtype
    assert not torch.equal(out.float(), exact)
    torch.testing.assert_close(out.float(), exact, rtol=0.1, atol=0.1)


def test_anchors_come_first():
    conv, x = build('anchors'), torch.randn(3, IN)
    for call in (conv, conv.graph):
        with pytest.raises(ValueError, match=r"'anchors' must be chosen first, by cho"):
            call(x)
    assert conv((torch.randn(9, IN), x)).shape == (3, OUT)


def test_anchors_are_rows_without_replacement():
    conv, x = build('anchors'), torch.randn(9, IN)
    counts = np.zeros((9, 9))
    for draw in range(600):
        rows = conv.choose_anchors(x, generator=seeded(draw)).anchors
        index = (rows.unsqueeze(1) == x).all(dim=2).nonzero()[:, 1]
        assert index.unique().numel() == S
        assert torch.equal(index, index.sort().values)
        counts[np.ix_(index, index)] += 1
    # All rows, and all pairs of them, are equally likely.
    single, pairs = np.diag(counts), counts[np.triu_indices(9, 1)]
    assert stats.chisquare(single).pvalue > ERROR_RATE
    assert stats.chisquare(pairs).pvalue > ERROR_RATE


def test_the_generator_chooses():
    conv, x = build('anchors'), torch.randn(100, IN, requires_grad=True)
    first = conv.choose_anchors(x, generator=seeded(1)).anchors
    assert not first.requires_grad
    assert torch.equal(first, conv.choose_anchors(x, generator=seeded(1)).anchors)
    assert not torch.equal(first, conv.choose_anchors(x, generator=seeded(2)).anchors)
    torch.manual_seed(1)
    other = conv.choose_anchors(x).anchors
    torch.manual_seed(1)
    assert torch.equal(other, conv.choose_anchors(x).anchors)
    # As many as there are transition nodes are those that are given.
    state = torch.get_rng_state()
    assert torch.equal(conv.choose_anchors(x[:S].flip(0)).anchors, x[:S].flip(0))
    assert torch.equal(state, torch.get_rng_state())


def test_no_other_row_is_read(tmp_path, meter):
    np.save(tmp_path / 'x.npy', np.random.default_rng(0).normal(size=(5000, IN)))
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'The given NumPy array is not writable')
        x = torch.from_numpy(np.load(tmp_path / 'x.npy', mmap_mode='r'))
    conv = build('anchors').double()
    with meter() as found:
        conv.choose_anchors(x)
    assert found.largest == S * IN
    x = torch.arange(1000.0).unsqueeze(1).repeat(1, IN)
    chosen = conv.choose_anchors(x, generator=seeded(1)).anchors[:, 0].long()
    other = torch.full_like(x, torch.nan)
    other[chosen] = x[chosen]
    conv.choose_anchors(other, generator=seeded(1))
    x[chosen[3]] = torch.nan
    with pytest.raises(ValueError, match="'x' contains NaN"):
        conv.choose_anchors(x, generator=seeded(1))


def test_rows_of_sparse_features():
    x = torch.randn(50, IN).relu()
    x[3] = 0
    conv = build('anchors')
    dense = conv.choose_anchors(x, generator=seeded(1)).anchors
    sparse = conv.choose_anchors(x.to_sparse_csr(), generator=seeded(1)).anchors
    assert torch.equal(dense, sparse)
    assert torch.equal(conv.choose_anchors(x[:S].to_sparse_csr()).anchors, x[:S])


@pytest.mark.parametrize('in_channels', [IN, -1])
@pytest.mark.parametrize('how', ['file', 'deepcopy'])
def test_anchors_are_part_of_the_state(in_channels, how):
    conv = build('anchors', in_channels).choose_anchors(torch.randn(20, IN))
    x = torch.randn(7, IN)
    expected = conv.eval()(x)
    if how == 'file':
        stream = io.BytesIO()
        torch.save(conv.state_dict(), stream)
        stream.seek(0)
        twin = build('anchors', in_channels)
        twin.load_state_dict(torch.load(stream, weights_only=True))
    else:
        twin = copy.deepcopy(conv)
    assert torch.equal(twin.eval()(x), expected)
    twin.choose_anchors(torch.randn(20, IN, generator=seeded(8)))
    assert not torch.equal(twin(x), expected)
    assert torch.equal(conv(x), expected)
    # Data, which go with the layer, and which a reset leaves as they are.
    before = conv.anchors.clone()
    conv.reset_parameters()
    assert torch.equal(conv.anchors, before)
    assert conv.double().anchors.dtype == torch.double
    assert conv.to('meta').anchors.is_meta


def test_states_that_do_not_fit():
    state = build('anchors').choose_anchors(torch.randn(20, IN)).state_dict()
    with pytest.raises(RuntimeError, match='size mismatch for anchors'):
        TransitionGraphConv(IN, OUT, None, S + 1, transition='anchors').load_state_dict(
            state
        )
    with pytest.raises(RuntimeError, match=r'Unexpected key.*anchors'):
        LatentGraphConv(IN, OUT).load_state_dict(state)
    conv = build('anchors').choose_anchors(torch.randn(20, IN))
    with pytest.raises(RuntimeError, match=r'Missing key.*anchors'):
        conv.load_state_dict(build('anchors').state_dict())


def test_what_has_no_meaning():
    x = torch.randn(20, IN)
    conv = build('free')
    for call in (conv, conv.graph):
        with pytest.raises(TypeError, match="with transition='free', which has no sou"):
            call((x, x))
    for other in (conv, TransitionGraphConv(IN, OUT, 20, S)):
        with pytest.raises(ValueError, match="'transition' must be 'anchors' for anch"):
            other.choose_anchors(x)


@pytest.mark.parametrize(
    ('error', 'x', 'match'),
    [
        (TypeError, None, r"'x' must be a torch.Tensor \(got NoneType\)"),
        (TypeError, torch.ones(9, IN).long(), "'x' must be floating-point"),
        (ValueError, torch.ones(9, IN + 1), r"'x' must have 5 channels \(got 6\)"),
        (ValueError, torch.ones(IN), r"'x' must have shape \[num_nodes, channels\]"),
        (
            ValueError,
            torch.ones(3, IN),
            r'at least num_transition_nodes=6 rows \(got 3',
        ),
        (ValueError, torch.ones(9, IN) / 0, "'x' contains NaN or infinite values"),
    ],
)
def test_bad_anchors(error, x, match):
    conv = build('anchors')
    with pytest.raises(error, match=match):
        conv.choose_anchors(x)
    assert conv.anchors is None
    with pytest.raises(TypeError, match=r"'generator' must be a torch\.Generator"):
        conv.choose_anchors(torch.ones(9, IN), generator=3)


@pytest.mark.parametrize(
    ('error', 'kwargs', 'match'),
    [
        (ValueError, {'transition': 'none'}, r"'transition' must be one of .* 'none'"),
        (TypeError, {}, r"'num_nodes' must be an integer \(got NoneType\)"),
        (
            ValueError,
            {'transition': 'free', 'num_nodes': 9},
            r"'num_nodes' has no meaning with transition='free', which serves any",
        ),
        (
            ValueError,
            {'transition': 'anchors', 'num_transition_nodes': 0},
            "'num_transition_nodes' must be at least 1",
        ),
    ],
)
def test_bad_arguments(error, kwargs, match):
    with pytest.raises(error, match=match):
        TransitionGraphConv(IN, OUT, **kwargs)


@pytest.mark.parametrize('how', ['half', 'autocast'])
def test_half_precision_of_many_rows(how):
    """Shares of 1 / n would be subnormal numbers."""
    theta, h = torch.randn(5, 20_000), torch.randn(20_000, 32).half().float()
    exact = theta.double() @ h.double() / 20_000
    torch.testing.assert_close(ProjectNodes()(theta, h), exact.float())
    if how == 'half':
        found = ProjectNodes()(theta.half(), h.half())
    else:
        with torch.autocast('cpu', dtype=torch.float16):
            found = ProjectNodes()(theta, h.half())
    assert found.dtype == torch.half
    assert float((found - exact).norm() / exact.norm()) < 1e-3
