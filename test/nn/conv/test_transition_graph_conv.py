"""Transition nodes: projections of all nodes, free vectors, or anchors."""

import math
import warnings

import numpy as np
import pytest
import torch
from oracles import seeded
from sampling import limits, normal
from scipy import stats

from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.transition_graph_conv import (
    TransitionGraphConv,
    project_nodes,
)
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES

N, S, IN, OUT = 7, 6, 11, 4
FORMS = pytest.mark.parametrize('form', ['free', 'anchors'])
TRAINING = pytest.mark.parametrize('training', [True, False])
ERROR_RATE = 1e-4


def build(form, in_channels=IN, **kwargs):
    torch.manual_seed(5)
    num_nodes = N if form == 'projected' else None
    size = in_channels, OUT, num_nodes, S
    return TransitionGraphConv(*size, transition=form, **kwargs)


def make(form='projected', **kwargs):
    conv = build(form, **kwargs).double()
    return conv.choose_anchors(normal(S, IN, seed=9)) if form == 'anchors' else conv


def test_parameters_are_scaled_projections():
    conv = make()
    assert conv.w_t.shape == conv.w_e.shape == (S, N)
    torch.testing.assert_close(conv.theta_t, N * conv.w_t)
    torch.testing.assert_close(conv.theta_e, N * conv.w_e)
    bound = math.sqrt(6 / (S + N))  # The projections themselves start as Glorot's.
    for weight in (conv.w_t, conv.w_e):
        assert 0.8 * bound < float(weight.detach().abs().max()) <= bound


@pytest.mark.parametrize('sparse', [True, False])
@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_wide_matrix_is_never_formed(method, training, sparse, meter):
    conv = make(method=method).train(training)
    x = normal(N, IN).to_sparse_csr() if sparse else normal(N, IN).requires_grad_()
    wide = {(S, IN), (IN, S)}
    with meter() as allocated:
        conv(x).square().sum().backward()
    assert (S, OUT) in allocated.shapes
    assert (OUT, IN) in allocated.shapes or (IN, OUT) in allocated.shapes  # A gradient.
    assert not allocated.shapes & wide
    if not sparse:  # The other order of brackets would be seen.
        with meter() as allocated:
            conv.lin(conv.w_e @ x)
        assert allocated.shapes & wide


def test_states_of_projections_are_as_they_were():
    names = {'bias', 'lin.weight', 'lin_root.weight', 'theta_t', 'theta_e'}
    bell = ('w_b', 'w_c', 'bias_b', 'bias_c')
    names |= {f'sampler.similarity.bell.{name}' for name in bell}
    names |= {'sampler.similarity.raw_share', 'sampler.log_scale'}
    assert set(TransitionGraphConv(IN, OUT, 7, S).state_dict()) == names


def test_parameters_of_the_forms():
    shapes = {name: p.shape for name, p in build('free').named_parameters()}
    assert shapes['transition_nodes'] == shapes['messages'] == (S, OUT)
    learned = {name for name, _ in build('anchors').named_parameters()}
    assert learned == {name for name, _ in LatentGraphConv(IN, OUT).named_parameters()}
    # Directions without a preferred one, about as long as unit rows.
    conv = TransitionGraphConv(IN, 64, None, 500, transition='free')
    for rows in (conv.transition_nodes, conv.messages):
        assert abs(float(rows.detach().norm(dim=1).mean()) - 1) < 0.02
        assert float(rows.detach().mean(dim=0).norm()) < 0.1


@pytest.mark.parametrize('similarity', SIMILARITIES)
@pytest.mark.parametrize('sparse', [False, True])
@TRAINING
def test_anchors_are_sources(similarity, training, sparse):
    conv = make('anchors', similarity=similarity, k=3).train(training)
    full = LatentGraphConv(IN, OUT, similarity=similarity, k=3).double().train(training)
    full.load_state_dict({k: v for k, v in conv.state_dict().items() if k != 'anchors'})
    x, sources = normal(9, IN).relu(), conv.anchors
    rows = x.to_sparse_csr() if sparse else x
    out, expected = (
        call(rows, generator=seeded(2))
        for call in (conv, lambda x, **kwargs: full((sources, x), **kwargs))
    )
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-14)
    graph = conv.graph(rows, generator=seeded(2))
    twin = full.graph((sources, rows), generator=seeded(2))
    assert torch.equal(graph.edge_index, twin.edge_index)
    # Others may be given, as many as one likes.
    anchors = normal(9, IN, seed=4)
    out = conv((anchors, rows), generator=seeded(2))
    expected = full((anchors, rows), generator=seeded(2))
    torch.testing.assert_close(out, expected)


@FORMS
@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_gradients(form, method):
    budget = limits(method, arrivals=S)
    conv, x = make(form, method=method, k=2, budget=budget), normal(3, IN)
    names, values = zip(*conv.named_parameters(), strict=True)

    def call(x, *values):
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(conv, parameters, x, {'generator': seeded(1)})

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
    with meter() as allocated:
        conv.train(training)(x).square().sum().backward()
    assert allocated.largest <= conv.sampler.k * size * s
    assert all(20 * size not in shape for shape in allocated.shapes)


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
    anchors = conv.choose_anchors(x, generator=seeded(1)).anchors
    assert not anchors.requires_grad
    assert torch.equal(anchors, conv.choose_anchors(x, generator=seeded(1)).anchors)
    assert not torch.equal(anchors, conv.choose_anchors(x, generator=seeded(2)).anchors)
    torch.manual_seed(1)
    drawn = conv.choose_anchors(x).anchors
    torch.manual_seed(1)
    assert torch.equal(drawn, conv.choose_anchors(x).anchors)
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
    with meter() as allocated:
        conv.choose_anchors(x)
    assert allocated.largest == S * IN
    x = torch.arange(1000.0).unsqueeze(1).repeat(1, IN)
    rows = conv.choose_anchors(x, generator=seeded(1)).anchors[:, 0].long()
    masked = torch.full_like(x, torch.nan)
    masked[rows] = x[rows]
    conv.choose_anchors(masked, generator=seeded(1))
    x[rows[3]] = torch.nan
    with pytest.raises(ValueError, match="'x' contains NaN"):
        conv.choose_anchors(x, generator=seeded(1))


def test_rows_of_sparse_features():
    x, conv = torch.randn(50, IN).relu(), build('anchors')
    dense = conv.choose_anchors(x, generator=seeded(1)).anchors
    sparse = conv.choose_anchors(x.to_sparse_csr(), generator=seeded(1)).anchors
    assert torch.equal(dense, sparse)


@pytest.mark.parametrize('in_channels', [IN, -1])
def test_anchors_are_part_of_the_state(in_channels):
    conv = build('anchors', in_channels).choose_anchors(torch.randn(20, IN))
    x = torch.randn(7, IN)
    expected = conv.eval()(x)
    twin = build('anchors', in_channels).eval()
    twin.load_state_dict(conv.state_dict())
    assert torch.equal(twin(x), expected)
    twin.choose_anchors(torch.randn(20, IN, generator=seeded(8)))
    assert not torch.equal(twin(x), expected)
    assert torch.equal(conv(x), expected)
    assert conv.double().anchors.dtype == torch.double


def test_states_that_do_not_fit():
    conv = build('anchors').choose_anchors(torch.randn(20, IN))
    with pytest.raises(RuntimeError, match=r'Missing key.*anchors'):
        conv.load_state_dict(build('anchors').state_dict())


def test_sources_and_anchors_that_a_form_has_not():
    x = torch.randn(20, IN)
    for call in (free := build('free'), free.graph):
        with pytest.raises(TypeError, match="with transition='free', which learns its"):
            call((x, x))
    for conv in (free, build('projected')):
        with pytest.raises(ValueError, match="'transition' must be 'anchors' to c"):
            conv.choose_anchors(x)
    conv = build('anchors')
    for call in (conv, conv.graph):
        with pytest.raises(ValueError, match="'anchors' must be chosen first, by cho"):
            call(x)
    assert conv((x, x[:3])).shape == (3, OUT)


@pytest.mark.parametrize(
    ('error', 'x', 'match'),
    [
        (TypeError, None, r"'x' must be a torch.Tensor \(got NoneType\)"),
        (ValueError, torch.ones(9, IN + 1), r"'x' must have 11 channels \(got 12"),
        (ValueError, torch.ones(3, IN), r'at least num_transition_nodes=6 rows \(got'),
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


@pytest.mark.parametrize('how', ['half', 'autocast'])
def test_half_precision_of_many_rows(how):
    """Shares of 1 / n would be subnormal numbers."""
    theta, h = torch.randn(5, 20_000), torch.randn(20_000, 32).half().float()
    exact = theta.double() @ h.double() / 20_000
    torch.testing.assert_close(project_nodes(theta, h), exact.float())
    if how == 'half':
        out = project_nodes(theta.half(), h.half())
    else:
        with torch.autocast('cpu', dtype=torch.float16):
            out = project_nodes(theta, h.half())
    assert out.dtype == torch.half
    assert float((out - exact).norm() / exact.norm()) < 1e-3
