import pytest
import torch
from oracles import relaxed, replay, seeded, softmax, to_matrix, truncated

from torch_geometric_gsl.ops.dense import relaxed_weights
from torch_geometric_gsl.ops.listed import (
    candidate_graph,
    nearest_candidates,
    rank_in_group,
)
from torch_geometric_gsl.ops.relax import DrawOptions

DOUBLE = {'dtype': torch.float64}
# Of six targets 1 and 5 have no candidates, 3 has a single one.
RAGGED = torch.tensor([[0, 2, 4, 1, 2, 3, 5, 0, 1, 4], [0, 0, 0, 2, 2, 2, 2, 3, 4, 4]])


def all_pairs(num_targets, num_sources):
    target = torch.arange(num_targets).repeat_interleave(num_sources)
    return torch.stack([torch.arange(num_sources).repeat(num_targets), target])


def options(k, tau, hard=False, replace=True):
    # Listed candidates are few: all are drawn, whatever is kept elsewhere.
    return DrawOptions(k, tau, num_arrivals=2, hard=hard, replace=replace)


def sample(score, given):
    return candidate_graph(score, RAGGED, 6, given, generator=seeded())


@pytest.mark.parametrize('k', [1, 3])
@pytest.mark.parametrize('hard', [False, True])
def test_ragged_candidates_against_loops(k, hard):
    score, tau = torch.randn(10, **DOUBLE), 0.5
    out = to_matrix(*sample(score, options(k, tau, hard)), 6, 6)
    noise, expected, start = replay(5, 10 * k), torch.zeros(6, 6, **DOUBLE), 0
    for i in range(6):
        own = (RAGGED[1] == i).nonzero().view(-1)
        if not own.numel():
            continue
        block = noise[start : start + k * own.numel()].view(1, k, -1)
        start += k * own.numel()
        row = relaxed(score[own].view(1, -1), block, tau, hard)
        expected[i, RAGGED[0, own]] = row
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize('hard', [False, True])
def test_distinct_draws_against_loops(hard):
    score, edges = torch.randn(4, 7, **DOUBLE), all_pairs(4, 7)
    given = options(3, 0.5, hard, replace=False)
    graph = candidate_graph(score.flatten(), edges, 4, given, generator=seeded())
    expected = truncated(score, replay(5, 4, 1, 7), 0.5, 3)
    if hard:
        expected = (expected > 0).double() / 3
    torch.testing.assert_close(to_matrix(*graph, 4, 7), expected)


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('more', ['', 'target', 'excluded'])
def test_all_pairs_give_the_dense_weights(more, hard):
    """Also those of a matrix that others follow, which are then drawn one by one."""
    leaf = torch.randn(4, 6, **DOUBLE, requires_grad=True)
    edges, grad = all_pairs(4, 6), torch.randn(4, 6, **DOUBLE)
    score = leaf[edges[1], edges[0]]
    if more:
        own = torch.arange(2 if more == 'target' else 6)
        edges = torch.cat([edges, torch.stack([own, torch.full_like(own, 4)])], dim=1)
        excluded = own.double().log() if more == 'excluded' else own.double()
        score = torch.cat([score, excluded])
    graph = candidate_graph(
        score, edges, 5 if more else 4, options(3, 0.5, hard), generator=seeded()
    )
    listed = to_matrix(*graph, 5, 6)[:4]
    dense = relaxed_weights(leaf, 3, 0.5, hard=hard, generator=seeded())
    torch.testing.assert_close(listed, dense)
    torch.testing.assert_close(
        torch.autograd.grad(listed, leaf, grad)[0],
        torch.autograd.grad(dense, leaf, grad)[0],
    )


@pytest.mark.parametrize('replace', [False, True])
def test_gradient(replace):
    score = torch.randn(10, **DOUBLE, requires_grad=True)
    given = options(3, 0.5, replace=replace)
    for draw in (
        lambda x: sample(x, given),
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
        own = [e for e in range(10) if RAGGED[1, e] == i]
        best = sorted(sorted(own, key=lambda e: -float(score[e]))[:k])
        if best:
            weights += softmax([float(score[e]) / tau for e in best])
        edges += [[int(RAGGED[0, e]), i] for e in best]
    graph = nearest_candidates(score, RAGGED, 6, k, tau)
    assert graph.edge_index.t().tolist() == edges
    torch.testing.assert_close(graph.edge_weight, torch.tensor(weights, **DOUBLE))


def test_equal_values_get_distinct_ranks():
    value = torch.tensor([1.0, 1, 1, -torch.inf, -torch.inf, 2])
    rank = rank_in_group(value, torch.tensor([0, 0, 0, 1, 1, 1]))
    assert sorted(rank[:3].tolist()) == [0, 1, 2]
    assert sorted(rank[3:].tolist()) == [0, 1, 2]
    assert rank[5] == 0
    assert rank_in_group(rank[:0], rank[:0]).shape == (0,)
