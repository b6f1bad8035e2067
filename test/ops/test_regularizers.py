import math
from functools import partial

import pytest
import torch
from oracles import seeded
from torch_geometric import EdgeIndex

from torch_geometric_gsl.ops import regularizers as R

N, D, E = 7, 4, 16
EPS = 0.05


def graph(seed=0, num_edges=E):
    """Edges in no order, one pair twice, no edge to the last node."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randperm((N - 1) * N, generator=generator)[:num_edges]
    edge_index = torch.stack([pairs % N, pairs // N])
    edge_index[:, 1] = edge_index[:, 0]
    weight = 0.1 + torch.rand(num_edges, generator=generator, dtype=torch.double)
    return edge_index, weight


def matrix(edge_index, weight):
    a = [[0.0] * N for _ in range(N)]
    for (j, i), w in zip(edge_index.t().tolist(), weight.tolist(), strict=True):
        a[i][j] += w
    return a


def shares(row):
    return [a / sum(row) if sum(row) else 0.0 for a in row]


X = torch.randn(N, D, generator=torch.Generator().manual_seed(1), dtype=torch.double)
PRIOR = graph(seed=5, num_edges=12)


def loop_smoothness(a):
    def square(i, j):
        return sum((float(X[i, c]) - float(X[j, c])) ** 2 for c in range(D))

    return [sum(a[i][j] * square(i, j) / 2 for j in range(N)) for i in range(N)]


def loop_barrier(a):
    return [-math.log(sum(row) + EPS) for row in a]


def loop_frobenius(a):
    return [sum(w * w for w in row) for row in a]


def loop_entropy(a):
    return [-sum(p * math.log(p) for p in shares(row) if p > 0) for row in a]


def loop_kl(a):
    result = []
    for row, prior in zip(a, matrix(*PRIOR), strict=True):
        p, r = shares(row), shares(prior)
        q = [(1 - EPS) * v + EPS / N if sum(prior) else 1 / N for v in r]
        terms = [p[j] * math.log(p[j] / q[j]) for j in range(N) if p[j] > 0]
        result.append(sum(terms))
    return result


def overlap(edge_index, weight, **kwargs):
    is_double = getattr(weight, 'dtype', None) == torch.double
    dtype = torch.double if is_double else torch.float32
    others = [(edges, value.to(dtype)) for edges, value in (PRIOR, graph(9))]
    return R.relation_overlap([(edge_index, weight), *others], N, **kwargs)


def loop_overlap(a):
    def cosine(u, v):
        product = sum(p * q for p, q in zip(u, v, strict=True))
        return product / (math.hypot(*u) * math.hypot(*v)) if any(u) and any(v) else 0.0

    all_three = zip(a, matrix(*PRIOR), matrix(*graph(9)), strict=True)
    return [(cosine(u, v) + cosine(u, w) + cosine(v, w)) / 3 for u, v, w in all_three]


KINDS = {
    'smoothness': (lambda e, w, **kw: R.smoothness(X, e, w, **kw), loop_smoothness),
    'degree_log_barrier': (
        partial(R.degree_log_barrier, num_nodes=N, eps=EPS),
        loop_barrier,
    ),
    'frobenius': (partial(R.frobenius, num_nodes=N), loop_frobenius),
    'edge_entropy': (partial(R.edge_entropy, num_nodes=N), loop_entropy),
    'kl_to_prior': (
        lambda e, w, **kw: R.kl_to_prior(e, w, *PRIOR, N, eps=EPS, **kw),
        loop_kl,
    ),
    'relation_overlap': (overlap, loop_overlap),
}
EACH = pytest.mark.parametrize('name', KINDS)


@EACH
@pytest.mark.parametrize('reduction', ['mean', 'sum', 'none'])
@pytest.mark.parametrize('kind', [torch.Tensor, EdgeIndex])
def test_value(name, reduction, kind):
    function, reference = KINDS[name]
    edge_index, weight = graph(1)
    edge_index = EdgeIndex(edge_index) if kind is EdgeIndex else edge_index
    expected = torch.tensor(reference(matrix(edge_index, weight)), dtype=torch.double)
    if reduction != 'none':
        expected = getattr(expected, reduction)()
    found = function(edge_index, weight, reduction=reduction)
    torch.testing.assert_close(found, expected)
    if reduction == 'mean':
        torch.testing.assert_close(function(edge_index, weight), expected)


@EACH
def test_gradient(name):
    edge_index, weight = graph()
    function = partial(KINDS[name][0], edge_index, reduction='none')
    assert torch.autograd.gradcheck(function, weight.requires_grad_())


def test_gradient_of_features_and_prior():
    edge_index, weight = graph()
    x = X.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: R.smoothness(x, edge_index, weight), x)
    prior = PRIOR[1].clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda w: R.kl_to_prior(edge_index, weight, PRIOR[0], w, N), prior
    )


@EACH
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32])
def test_dtypes(name, dtype):
    function = KINDS[name][0]
    edge_index, weight = graph()
    weight = weight.to(dtype).requires_grad_()
    found = function(edge_index, weight)
    assert found.dtype == torch.float32
    expected = function(edge_index, weight.detach().double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    found.backward()
    assert weight.grad.dtype == dtype
    assert bool(weight.grad.isfinite().all())


@EACH
def test_no_edges(name):
    edge_index, weight = graph()
    found = KINDS[name][0](edge_index[:, :0], weight[:0], reduction='none')
    value = -math.log(EPS) if name == 'degree_log_barrier' else 0.0
    expected = torch.full((N,), value, dtype=torch.double)
    if name == 'relation_overlap':  # That of the two other graphs is left.
        two = [PRIOR, graph(9)]
        expected = R.relation_overlap(two, N, reduction='none') / 3
    torch.testing.assert_close(found, expected)


@EACH
def test_weights_of_zero(name):
    edge_index, weight = graph()
    weight[2:5] = 0
    weight.requires_grad_()
    function = KINDS[name][0]
    keep = weight.detach() > 0
    found = function(edge_index, weight)
    torch.testing.assert_close(found, function(edge_index[:, keep], weight[keep]))
    found.backward()
    assert bool(weight.grad.isfinite().all())


def test_divergence_from_equal_weights():
    # eps = 1: equal weights over all nodes, whatever the prior.
    edge_index, weight = PRIOR
    found = R.kl_to_prior(edge_index, weight, *graph(2), N, eps=1, reduction='none')
    entropy = R.edge_entropy(edge_index, weight, N, reduction='none')
    has_edge = torch.bincount(edge_index[1], minlength=N) > 0
    torch.testing.assert_close(found, (math.log(N) - entropy) * has_edge)


@pytest.mark.parametrize(
    ('error', 'change', 'match'),
    [
        (ValueError, {'reduction': 'max'}, r"'reduction' must be one of \['mean', 's"),
        (ValueError, {'num_nodes': 0}, r"'num_nodes' must be at least 1 \(got 0\)"),
        (TypeError, {'num_nodes': 7.0}, "'num_nodes' must be an integer"),
        (TypeError, {'edge_weight': [1.0]}, r"'edge_weight' must be a floating-.*list"),
        (
            TypeError,
            {'edge_weight': torch.ones(E).long()},
            r"'edge_weight' must be a floating-point tensor \(got torch.int64\)",
        ),
        (
            ValueError,
            {'edge_weight': torch.ones(E, 1)},
            r"'edge_weight' must have shape \[16\] \(got \[16, 1\]\)",
        ),
        (
            ValueError,
            {'edge_weight': torch.ones(E) / 0},
            r'NaN or inf.* \(got 16 of 16',
        ),
        (TypeError, {'edge_index': None}, "'edge_index' must be a torch.Tensor"),
        (TypeError, {'edge_index': torch.ones(2, E)}, "'edge_index' must have dtype"),
        (ValueError, {'edge_index': torch.ones(3, E).long()}, r'\(got \[3, 16\]\)'),
        (ValueError, {'edge_index': torch.full((2, E), N)}, r'0..6 \(got 7..7\)'),
        (
            ValueError,
            {'edge_index': torch.tensor([[0], [N]]).repeat(1, E)},
            'targets ou',
        ),
    ],
)
def test_bad_arguments(error, change, match):
    edge_index, edge_weight = graph()
    given = {'edge_index': edge_index, 'edge_weight': edge_weight, 'num_nodes': N}
    with pytest.raises(error, match=match):
        R.frobenius(**given | change)


@pytest.mark.parametrize(
    'name', ['degree_log_barrier', 'edge_entropy', 'kl_to_prior', 'relation_overlap']
)
def test_negative_weights(name):
    edge_index, weight = graph()
    weight[3] = -0.5
    with pytest.raises(ValueError, match=r"'edge_weight' must not be neg.*\(got -0.5"):
        KINDS[name][0](edge_index, weight)


def test_more_bad_arguments():
    edge_index, weight = graph()
    with pytest.raises(ValueError, match=r"'eps' must be positive and finite \(got 0"):
        R.degree_log_barrier(edge_index, weight, N, eps=0)
    for eps in (0, 1.5):
        with pytest.raises(ValueError, match=rf"'eps' must lie in \(0, 1\].*got {eps}"):
            R.kl_to_prior(edge_index, weight, *PRIOR, N, eps=eps)
    with pytest.raises(ValueError, match="'prior_edge_weight' must have shape"):
        R.kl_to_prior(edge_index, weight, PRIOR[0], weight, N)
    with pytest.raises(ValueError, match="'prior_edge_index' has targets outside"):
        R.kl_to_prior(edge_index, weight, torch.tensor([[0], [N]]), weight[:1], N)
    with pytest.raises(ValueError, match=r"'graphs' must hold at least two .*got 1\)"):
        R.relation_overlap([(edge_index, weight)], N)
    with pytest.raises(ValueError, match="'x' must be dense or sparse CSR"):
        R.smoothness(X.to_sparse_coo(), edge_index, weight)


@pytest.mark.parametrize('size', [0.0, 1e-20])
def test_overlap_of_weights_that_vanish(size):
    """Hard draws of a null neighbour leave weights of zero, which have a gradient."""
    edge_index = torch.tensor([[0, 1, 0], [1, 1, 0]])
    first = torch.tensor([size, 0.0, 1.0], requires_grad=True)
    second = torch.tensor([0.5, 0.5, 1.0], requires_grad=True)
    graphs = [(edge_index, first), (edge_index, second)]
    value = R.relation_overlap(graphs, 2, reduction='none')
    assert float(value.detach()[0]) == 1.0
    value.sum().backward()
    assert torch.isfinite(first.grad).all()
    assert torch.isfinite(second.grad).all()


@pytest.mark.parametrize('scale', [1.0, 1e38])
def test_entropy_of_weights_that_are_far_apart(scale):
    """A share may vanish in float32, and a sum overflow: its logarithm does neither."""
    edge_index = torch.tensor([[0, 1, 2, 0, 1], [0, 0, 0, 1, 1]])
    weight = torch.tensor([1e-37, 3.0, 1.0, 2.0, 3.0]) * scale
    found = R.edge_entropy(edge_index, weight.requires_grad_(), 3, reduction='none')
    exact = R.edge_entropy(edge_index, weight.detach().double(), 3, reduction='none')
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-6)
    found.sum().backward()
    assert bool(weight.grad.isfinite().all())


@pytest.mark.parametrize('size', [1e-37, 1e-39, 1e-42, 1e-45])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_gradients_of_weights_that_vanish_are_finite(size, dtype):
    """A softmax leaves such weights, and a target may have no others."""
    edge_index = torch.tensor([[0, 1, 0, 1], [0, 0, 1, 2]])
    weight = torch.tensor([size, 2 * size, 1.0, size], dtype=dtype, requires_grad=True)
    found = R.edge_entropy(edge_index, weight, 3, reduction='none')
    assert bool(found.isfinite().all())
    found.sum().backward()
    assert bool(weight.grad.isfinite().all())


@pytest.mark.parametrize('is_sparse', [False, True])
@pytest.mark.parametrize('dtype', [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize('budget', [1, 700, 2**25])
def test_smoothness_by_blocks(is_sparse, dtype, budget, meter):
    # Features with zeros, empty rows and equal rows; edges with repetitions.
    x = torch.randn(50, 5, generator=seeded(), dtype=torch.double)
    x = x.masked_fill(torch.rand(50, 5, generator=seeded(1)) < 0.4, 0).to(dtype)
    x[3], x[5] = 0, x[4]
    edge_index = torch.randint(50, (2, 400), generator=seeded(2))
    edge_index[:, :3] = torch.tensor([[4, 3, 2], [5, 0, 2]])
    given = x.to_sparse_csr() if is_sparse else x
    weight = torch.rand(400, generator=seeded(3), dtype=torch.double).requires_grad_()
    u, v = x.double()[edge_index]
    expected = (weight * (u - v).square().sum(dim=1)).sum() / 2
    args = given, edge_index, weight
    with meter() as measured:
        found = R.smoothness(*args, reduction='sum', memory_budget=budget)
    for one, other in (
        (found, expected),
        (torch.autograd.grad(out, weight)[0] for out in (found, expected)),
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert measured.largest <= (800 if budget < 2**25 else 5000)


def test_near_nodes_keep_their_distance_and_its_gradient():
    # In float32 the squares of the rows have no digit left for the difference.
    x = torch.tensor([[1e5, 9e5], [1e5 + 0.25, 9e5]], requires_grad=True)
    edge = torch.tensor([[0], [1]]), torch.ones(1)
    distance = 2 * R.smoothness(x, *edge, reduction='sum')
    assert float(distance.detach()) == 0.0625
    sparse = torch.tensor([[1000.0, 0.0], [1000.25, 0.0]]).to_sparse_csr()
    assert float(2 * R.smoothness(sparse, *edge, reduction='sum')) == 0.0625
    distance.backward()
    assert x.grad.tolist() == [[-0.5, 0.0], [0.5, 0.0]]
