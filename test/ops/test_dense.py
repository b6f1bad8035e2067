import pytest
import torch
from oracles import (
    matrix_pairs,
    relaxed,
    replay,
    saved_tensors,
    seeded,
    softmax,
    to_matrix,
)

from torch_geometric_gsl.ops.dense import (
    candidate_graph,
    perturbed_arrivals,
    relaxed_weights,
)
from torch_geometric_gsl.ops.noise_free import nearest_candidates
from torch_geometric_gsl.ops.pair_scores import exclude
from torch_geometric_gsl.ops.relax import DrawOptions

DOUBLE = {'dtype': torch.float64}


def gradient(score, grad, **kwargs):
    leaf = score.clone().requires_grad_()
    weight = relaxed_weights(leaf, generator=seeded(), **kwargs)
    return torch.autograd.grad(weight, leaf, grad)[0]


@pytest.mark.parametrize('n', [4, 0])
@pytest.mark.parametrize('budget', [1, 700, 2**25])
def test_gradient(budget, n):
    score = torch.randn(n, 5, **DOUBLE, requires_grad=True)

    def weights(score):
        return relaxed_weights(score, 3, 0.5, generator=seeded(), memory=budget)

    assert torch.autograd.gradcheck(weights, score)


def test_each_gradient_is_that_of_the_soft_weights():
    # Also a second one of the same graph, and whatever is drawn in between.
    score, grad = torch.randn(4, 5, requires_grad=True), torch.randn(4, 5)
    gradients = []
    for hard in (False, True):
        weight = relaxed_weights(score, 3, 0.4, hard=hard, generator=seeded())
        for _ in range(2):
            torch.rand(10)
            gradients += torch.autograd.grad(weight, score, grad, retain_graph=True)
    assert all(torch.equal(gradients[0], gradient) for gradient in gradients[1:])
    assert float(gradients[0].abs().max()) > 0.1


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('tau', [0.01, 0.25])
def test_large_scores_and_excluded_loops_stay_finite(hard, tau):
    x = torch.randn(6, 6, requires_grad=True)
    score = exclude(1e3 * x, torch.arange(6))
    weight = relaxed_weights(score, 5, tau, hard=hard)
    torch.testing.assert_close(weight.sum(dim=1), torch.ones(6))
    assert not weight.diagonal().any()
    weight.square().sum().backward()
    assert bool(x.grad.isfinite().all())
    assert not x.grad.diagonal().any()


@pytest.mark.parametrize('hard', [False, True])
def test_no_tensor_of_all_draws_exists(meter, hard):
    n, k = 32, 8
    score = torch.randn(n, n, requires_grad=True)
    sizes = {}
    # Four temporaries of four rows with k draws each, in float32; and all rows.
    for budget in (4 * 4 * k * n * 4, 2**25):
        with meter() as memory:
            weight = relaxed_weights(score, k, 0.5, hard=hard, memory=budget)
            forward, memory.largest = memory.largest, 0
            weight.sum().backward()
        sizes[budget] = (forward, memory.largest)
    small, large = sizes.values()
    assert small == (n * n, n * n)
    assert large == (k * n * n, k * n * n)


def test_only_the_scores_are_saved_for_backward():
    score = torch.randn(9, 9, requires_grad=True)
    with saved_tensors() as saved:
        relaxed_weights(score, 3, 0.5)
    assert [tensor.data_ptr() for tensor in saved] == [score.data_ptr()]


@pytest.mark.parametrize('num_arrivals', [1, 16, 40])
@pytest.mark.parametrize('scale', [1.0, 50.0, 1000.0])
@pytest.mark.parametrize('budget', [1, 2**25])
def test_arrivals_are_the_largest_perturbed_scores(num_arrivals, scale, budget):
    score = scale * torch.rand(5, 40, **DOUBLE)
    noise = replay(5, 5, 3, 40)
    pairs = matrix_pairs(score)._replace(memory=budget)
    arrivals = perturbed_arrivals(pairs, 3, num_arrivals, generator=seeded())
    assert arrivals.source.shape == arrivals.noise.shape == (5, 3, num_arrivals)
    for i in range(5):
        for k in range(3):
            value = (score[i] + noise[i, k]).tolist()
            order = sorted(range(40), key=lambda j: -value[j])[:num_arrivals]
            assert arrivals.source[i, k].tolist() == order
            torch.testing.assert_close(arrivals.noise[i, k], noise[i, k, order])
            # All arrivals until the time of the last one are listed.
            horizon = -value[order[-1]]
            assert float(arrivals.horizon[i, k]) == pytest.approx(horizon)


# Of six targets 1 and 5 have no candidates, 3 has a single one.
RAGGED = torch.tensor([[0, 2, 4, 1, 2, 3, 5, 0, 1, 4], [0, 0, 0, 2, 2, 2, 2, 3, 4, 4]])


def all_pairs(num_targets, num_sources):
    target = torch.arange(num_targets).repeat_interleave(num_sources)
    return torch.stack([torch.arange(num_sources).repeat(num_targets), target])


def options(k, tau, hard=False, replace=True):
    # Listed candidates are few: all are drawn, whatever is kept elsewhere.
    return DrawOptions(k, tau, num_arrivals=2, hard=hard, replace=replace)


def sample(score, draw_options):
    return candidate_graph(score, RAGGED, 6, draw_options, generator=seeded())


@pytest.mark.parametrize('k', [1, 3])
@pytest.mark.parametrize('hard', [False, True])
def test_ragged_candidates_against_loops(k, hard):
    score, tau = torch.randn(10, **DOUBLE), 0.5
    out = to_matrix(*sample(score, options(k, tau, hard)), 6, 6)
    noise, expected, start = replay(5, 10 * k), torch.zeros(6, 6, **DOUBLE), 0
    for i in range(6):
        edges = (RAGGED[1] == i).nonzero().view(-1)
        if not edges.numel():
            continue
        block = noise[start : start + k * edges.numel()].view(1, k, -1)
        start += k * edges.numel()
        row = relaxed(score[edges].view(1, -1), block, tau, hard)
        expected[i, RAGGED[0, edges]] = row
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('added', ['', 'target', 'excluded'])
def test_all_pairs_give_the_dense_weights(added, hard):
    """Also those of a matrix that others follow, which are then drawn one by one."""
    leaf = torch.randn(4, 6, **DOUBLE, requires_grad=True)
    edges, grad = all_pairs(4, 6), torch.randn(4, 6, **DOUBLE)
    score = leaf[edges[1], edges[0]]
    if added:
        source = torch.arange(2 if added == 'target' else 6)
        edges = torch.cat(
            [edges, torch.stack([source, torch.full_like(source, 4)])], dim=1
        )
        excluded = source.double().log() if added == 'excluded' else source.double()
        score = torch.cat([score, excluded])
    graph = candidate_graph(
        score, edges, 5 if added else 4, options(3, 0.5, hard), generator=seeded()
    )
    listed = to_matrix(*graph, 5, 6)[:4]
    dense = relaxed_weights(leaf, 3, 0.5, hard=hard, generator=seeded())
    torch.testing.assert_close(listed, dense)
    torch.testing.assert_close(
        torch.autograd.grad(listed, leaf, grad)[0],
        torch.autograd.grad(dense, leaf, grad)[0],
    )


@pytest.mark.parametrize('replace', [False, True])
def test_gradient_of_listed_candidates(replace):
    score = torch.randn(10, **DOUBLE, requires_grad=True)
    draw_options = options(3, 0.5, replace=replace)
    for draw in (
        lambda x: sample(x, draw_options),
        lambda x: nearest_candidates(x, RAGGED, 6, 2 if replace else None, 0.5),
    ):
        assert torch.autograd.gradcheck(lambda x, draw=draw: draw(x).edge_weight, score)


@pytest.mark.parametrize('hard', [False, True])
def test_excluded_candidates(hard):
    # Of the targets 0, 2 and 3 one, two and all candidates are excluded.
    score = torch.randn(10)
    score[[1, 3, 6, 7]] = -torch.inf
    score.requires_grad_()
    nearest = nearest_candidates(score, RAGGED, 6, 9, 0.5)
    for graph in (sample(score, options(3, 0.5, hard)), nearest):
        assert torch.equal(graph.edge_index, RAGGED[:, [0, 2, 4, 5, 8, 9]])
        total = to_matrix(*graph, 6, 6).sum(dim=1)
        torch.testing.assert_close(total, torch.tensor([1.0, 0, 1, 0, 1, 0]))
        (grad,) = torch.autograd.grad(graph.edge_weight.square().sum(), score)
        assert bool(grad.isfinite().all())
        assert not grad[[1, 3, 6, 7]].any()


@pytest.mark.parametrize('k', [1, 2, 9, None])
def test_nearest_candidates(k):
    score, tau = torch.randn(10, **DOUBLE), 0.4
    edges, weights = [], []
    for i in range(6):
        candidates = [e for e in range(10) if RAGGED[1, e] == i]
        best = sorted(sorted(candidates, key=lambda e: -float(score[e]))[:k])
        if best:
            weights += softmax([float(score[e]) / tau for e in best])
        edges += [[int(RAGGED[0, e]), i] for e in best]
    graph = nearest_candidates(score, RAGGED, 6, k, tau)
    assert graph.edge_index.t().tolist() == edges
    torch.testing.assert_close(graph.edge_weight, torch.tensor(weights, **DOUBLE))
