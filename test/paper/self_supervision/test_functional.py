"""Hidden features and channels, the contrast of two views, and consistent passes."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import seeded, softmax
from sampling import normal
from small_baselines import contrast

from reproduction.self_supervision import consistency_loss
from reproduction.self_supervision.functional import (
    choose_numbers,
    drop_edges,
    grouped_nt_xent,
    hide_channels,
    mask_features,
    nt_xent,
)
from torch_geometric_gsl.ops.edges import Edges
from torch_geometric_gsl.ops.neighbours import Neighbours

stats = pytest.importorskip('scipy.stats')
LAYOUTS = pytest.mark.parametrize('layout', ['dense', 'sparse', 'unordered'])


def words(n=40, width=30):
    generator = seeded(0)
    x = torch.rand(n, width, generator=generator, dtype=torch.float64) + 0.1
    x = x * (torch.rand(n, width, generator=generator) < 0.2)
    x[3] = 0
    return x


def as_layout(x, layout):
    if layout == 'dense':
        return x
    if layout == 'sparse':
        return x.to_sparse_csr()
    # Columns in descending order, and a zero that is stored.
    stored = x != 0
    stored[0, int((x[0] == 0).nonzero()[0])] = True
    row, column = stored.flip(1).nonzero(as_tuple=True)
    column = x.size(1) - 1 - column
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), stored.sum(1).cumsum(0)])
    return torch.sparse_csr_tensor(
        offsets, column, x[row, column], x.shape, check_invariants=False
    )


def is_law(successes, trials, probability):
    """A two-sided test that errs once in 100,000."""
    return bool(stats.binomtest(successes, trials, probability).pvalue > 1e-5)


@pytest.mark.parametrize('probability', [0.001, 0.1, 0.5, 0.95])
def test_choose(probability):
    generator = seeded(1)
    count, runs = 37, 4000
    hits, sizes = torch.zeros(count, dtype=torch.long), []
    neighbours = 0
    for _ in range(runs):
        numbers = choose_numbers(count, probability, generator=generator)
        assert bool((numbers.diff() > 0).all())
        hits[numbers] += 1
        sizes.append(numbers.numel())
        neighbours += int((numbers.diff() == 1).sum())
    # Each with the one probability, also the first and the last of them...
    assert all(is_law(int(hit), runs, probability) for hit in hits)
    # ...and by itself: sizes are binomial, and so are pairs of neighbours.
    table = torch.tensor(sizes).bincount(minlength=count + 1).double()
    law = torch.from_numpy(stats.binom.pmf(range(count + 1), count, probability)) * runs
    often = law > 5
    rare = (float(table[~often].sum()), float(law[~often].sum()))
    observed = [*table[often].tolist(), rare[0]]
    expected = [*law[often].tolist(), rare[1]]
    total = sum(observed) / sum(expected)
    assert stats.chisquare(observed, [e * total for e in expected]).pvalue > 1e-5
    pairs = runs * (count - 1)
    # Pairs that overlap depend on each other: three times the deviation of a binomial.
    mean, deviation = pairs * probability**2, (pairs * probability**2) ** 0.5
    assert abs(neighbours - mean) < 3 * 4.4 * deviation + 1


def test_choose_at_the_limits():
    assert choose_numbers(5, 1.0).tolist() == [0, 1, 2, 3, 4]
    assert choose_numbers(5, 1.5).tolist() == [0, 1, 2, 3, 4]
    for count, probability in ((5, 0.0), (0, 0.5), (0, 1.0)):
        assert choose_numbers(count, probability).tolist() == []
    # More than are drawn at once, and far beyond 32 bits.
    assert choose_numbers(100_000, 0.9999).numel() > 99_900
    far = choose_numbers(2**40, 1e-9, generator=seeded(0))
    assert int(far.max()) > 2**39
    assert bool((far.diff() > 0).all())


@LAYOUTS
@pytest.mark.parametrize('negative_ratio', [None, 0, 3, 1e6])
def test_what_is_hidden_is_told_and_nothing_else(layout, negative_ratio):
    x = words()
    laid_out = as_layout(x, layout)
    before = laid_out.to_dense().clone()
    masked = mask_features(laid_out, 2.5, negative_ratio, generator=seeded())
    # One seed hides the same features, however they are stored.
    same = mask_features(x, 2.5, negative_ratio, generator=seeded())
    assert all(map(torch.equal, masked[1:], same[1:]))
    assert masked.x.layout == laid_out.layout
    assert torch.equal(laid_out.to_dense(), before)
    cells = list(zip(masked.row.tolist(), masked.column.tolist(), strict=True))
    assert cells == sorted(set(cells))
    hidden = x[masked.row, masked.column]
    expected = hidden if negative_ratio is None else (hidden > 0).to(x.dtype)
    assert torch.equal(masked.target, expected)
    # No hidden value leaks into the input.
    left = x.index_put((masked.row, masked.column), x.new_zeros(()))
    assert torch.equal(masked.x.to_dense(), left)
    zeros = int((masked.target == 0).sum())
    if negative_ratio is not None:
        assert zeros == 0 if negative_ratio == 0 else zeros > 0
    if negative_ratio == 1e6:
        assert zeros == int((x == 0).sum())


@LAYOUTS
def test_rates(layout):
    x = words(60, 50)
    ones, zeros = int((x > 0).sum()), int((x == 0).sum())
    laid_out, generator = as_layout(x, layout), seeded(2)
    runs, ratio, negative_ratio = 60, 8.0, 3.0
    counts = [0, 0, 0]
    hits = torch.zeros(x.shape, dtype=torch.long)
    for _ in range(runs):
        masked = mask_features(laid_out, ratio, negative_ratio, generator=generator)
        counts[0] += int(masked.target.sum())
        counts[1] += masked.target.numel() - int(masked.target.sum())
        hits[masked.row, masked.column] += 1
        counts[2] += mask_features(laid_out, ratio, generator=generator).target.numel()
    assert is_law(counts[0], runs * ones, 1 / ratio)
    assert is_law(counts[1], runs * zeros, ones / zeros * negative_ratio / ratio)
    assert is_law(counts[2], runs * x.numel(), 1 / ratio)
    # Each row has its share.
    for i in range(x.size(0)):
        num_hidden, num_ones = (
            int(hits[i][x[i] > 0].sum()),
            runs * int((x[i] > 0).sum()),
        )
        assert num_ones == 0 or is_law(num_hidden, num_ones, 1 / ratio)


@pytest.mark.parametrize('layout', ['dense', 'sparse'])
def test_smallest_inputs(layout):
    for x in (torch.zeros(0, 3), torch.zeros(3, 0), torch.zeros(2, 3)):
        for negative_ratio in (None, 5):
            masked = mask_features(as_layout(x, layout), 1.0, negative_ratio)
            assert masked.x.shape == x.shape
            assert not masked.target.any()
    full = mask_features(as_layout(torch.ones(2, 3), layout), 1.0, 5.0)
    assert full.target.tolist() == [1.0] * 6
    assert not full.x.to_dense().any()


@LAYOUTS
def test_hidden_channels_are_those_of_all_nodes(layout):
    x = words()
    x[5] += 1
    masked = hide_channels(as_layout(x, layout), 0.7, seeded()).to_dense()
    is_kept = masked[5] != 0
    assert int(is_kept.sum()) == 30 - int(0.7 * 30) == 9
    assert torch.equal(masked, x * is_kept)
    assert torch.equal(hide_channels(x, 0.03, seeded()), x)


def test_each_channel_is_hidden_as_often():
    x, generator = torch.ones(1, 6), seeded()
    hidden = sum(hide_channels(x, 0.5, generator)[0] == 0 for _ in range(600))
    assert int(hidden.sum()) == 600 * 3
    # Binomial: mean 300, standard deviation 12.2; one of six channels is beyond five
    # of them with a probability of 4e-6.
    assert bool(((hidden - 300).abs() < 62).all())


T = 0.2


def views(n=7, width=4):
    shape = (2, n, width)
    return torch.randn(shape, generator=seeded(0), dtype=torch.float64).unbind()


def test_contrast_against_loops():
    # What is left over is a group; a group of one node has nothing to be told from.
    view, other_view = views()
    for size, ends in ((3, (3, 6, 7)), (6, (6, 7)), (100, (7,)), (None, (7,))):
        terms, start = [], 0
        for end in ends:
            term = contrast(view[start:end], other_view[start:end], T)
            terms.append(term * (end - start) / 7)
            start = end
        loss = float(grouped_nt_xent(view, other_view, T, size))
        assert loss == pytest.approx(math.fsum(terms), abs=1e-12)
    assert float(nt_xent(view[:1], other_view[:1], T)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32])
def test_contrast_of_sharp_scores(dtype):
    view, other_view = (view.to(dtype).requires_grad_() for view in views())
    loss = nt_xent(view, other_view, 0.001)
    loss.backward()
    assert loss.dtype == dtype
    assert bool(loss.isfinite() & view.grad.isfinite().all())


def test_blocks_bound_what_is_computed_at_once(meter):
    view, other_view = (view.requires_grad_() for view in views(600))
    for rows in (60, 200):
        with meter() as measured:
            nt_xent(view, other_view, T, memory=3 * 600 * 8 * rows).backward()
        assert measured.largest == 600 * rows


def test_dropout_of_edges():
    stats = pytest.importorskip('scipy.stats')
    count = 20_000
    neighbours = Neighbours(torch.zeros(1, count, dtype=torch.long), num_sources=1)
    edges = Edges(neighbours, torch.linspace(1, 2, count))
    for probability in (0.25, 0.5):
        dropped = drop_edges(edges, probability, seeded()).weight
        zeros = dropped == 0
        # A two-sided test that errs once in 100,000.
        assert stats.binomtest(int(zeros.sum()), count, probability).pvalue > 1e-5
        expected = edges.weight[~zeros] / (1 - probability)
        torch.testing.assert_close(dropped[~zeros], expected)
    assert drop_edges(edges, 0.0, None) is edges


TWO = torch.ones(3, 2)
ERRORS = [
    (3, TypeError, r"'outs' must be a sequence of tensors \(got int\)"),
    ([[1.0], [2.0]], TypeError, r"'outs' must be a torch.Tensor \(got list\)"),
    (torch.ones(2, 3, 2).long(), TypeError, r'must be floating-point \(got torch.int'),
    (torch.ones(2, 3), ValueError, r"'outs' must have shape .* \(got \[3\]\)"),
    ([TWO], ValueError, r'have at least two passes \(got 1\)'),
    ([TWO, TWO.double()], ValueError, r'have one shape and dtype \(got \[3, 2\] of'),
    ([TWO, torch.ones(3, 4)], ValueError, r'\(got \[3, 2\] of .* and \[3, 4\] of'),
]


def loop_loss(outs, temperature):
    """Compute the loss number by number."""
    total, num_passes, num_nodes = 0.0, len(outs), len(outs[0])
    for i in range(num_nodes):
        shares = [softmax(out[i]) for out in outs]
        mean = [math.fsum(column) / num_passes for column in zip(*shares, strict=True)]
        power = [share ** (1 / temperature) for share in mean]
        target = [value / sum(power) for value in power]
        for share in shares:
            total += sum((p - q) ** 2 for p, q in zip(share, target, strict=True))
    return total / num_passes / num_nodes


@given(
    st.integers(2, 4),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from([0.1, 0.5, 1.0, 3.0]),
)
def test_against_loops(num_passes, num_nodes, num_classes, temperature):
    outs = 2 * normal(num_passes, num_nodes, num_classes)
    expected = loop_loss(outs.tolist(), temperature)
    loss = consistency_loss(list(outs), temperature)
    assert float(loss) == pytest.approx(expected, abs=1e-12)
    # The order of the passes means nothing.
    torch.testing.assert_close(loss, consistency_loss(outs.flip(0), temperature))


def test_no_gradient_flows_through_the_mean():
    outs = normal(2, 5, 3).requires_grad_()
    share = outs.softmax(dim=-1)
    power = share.mean(dim=0).pow(2)
    target = (power / power.sum(dim=1, keepdim=True)).detach()
    expected = (share - target).square().sum(dim=-1).mean()
    losses = consistency_loss(outs), expected
    gradient, expected_gradient = (
        torch.autograd.grad(loss, outs)[0] for loss in losses
    )
    torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype):
    outs = normal(2, 5, 3).to(dtype)
    loss = consistency_loss(outs)
    assert loss.dtype == dtype
    expected = consistency_loss(outs.double())
    assert float(loss) == pytest.approx(float(expected), rel=0.02)


def test_large_logits_and_no_nodes():
    outs = (1e4 * normal(2, 5, 3)).float().requires_grad_()
    loss = consistency_loss(outs, temperature=0.01)
    loss.backward()
    assert loss.isfinite()
    assert outs.grad.isfinite().all()
    assert float(consistency_loss(torch.ones(2, 0, 3))) == 0


@pytest.mark.parametrize(('outs', 'error', 'text'), ERRORS)
def test_errors(outs, error, text):
    with pytest.raises(error, match=text):
        consistency_loss(outs)
    with pytest.raises(ValueError, match=r"'temperature' must be .*\(got 0"):
        consistency_loss(torch.ones(2, 3, 2), 0.0)
