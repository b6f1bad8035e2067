import pytest
import torch
from oracles import seeded
from torch.nn import functional as F

from torch_geometric_gsl.baselines.idgl.learned import LearnedGraph, Weights
from torch_geometric_gsl.baselines.idgl.nodes import Nodes
from torch_geometric_gsl.baselines.idgl.pairs import DensePairs
from torch_geometric_gsl.nn.similarity import CosineSimilarity

BLOCKS = [slice(0, 3), slice(3, 6), slice(6, 8)]
FACTORS = 0.7, 0.3, 0.2


def leaves(seed=0):
    """Embeddings, features and messages of eight nodes."""
    generator = seeded(seed)
    for width in (3, 4, 2):
        rows = torch.randn(8, width, generator=generator, dtype=torch.double)
        yield rows.requires_grad_()


def threshold(part, rows):
    """Keep what is more than 0.1, and no pair of the last three rows."""
    part = F.threshold(part, 0.1, 0.0)
    is_last = (torch.arange(8) > 4).double()
    return part * (1 - is_last[rows].unsqueeze(1) * is_last[rows.start :])


def learn(z, x, num_messages=2, is_kept=False):
    pairs = DensePairs(z)
    pairs.is_costly = is_kept
    weights = Weights(pairs, DensePairs(x), BLOCKS, threshold)
    products = [*map(DensePairs(x).strip, BLOCKS)] if is_kept else ()
    return LearnedGraph(weights, [2] * num_messages, products)


def dense(z):
    return threshold(z @ z.t(), slice(0, None))


@torch.no_grad()
def test_weights_by_strips():
    z, x, _ = leaves()
    graph, a = learn(z, x), dense(z)
    assert 8 < int((a > 0).sum()) < 50
    torch.testing.assert_close(torch.cat([*graph.weights()]), a)
    for rows, part in zip(BLOCKS, graph.strips(), strict=True):
        torch.testing.assert_close(part, a[rows, rows.start :])
    torch.testing.assert_close(graph.total, a.sum(dim=1))
    torch.testing.assert_close(graph.size, a.square().sum())


@pytest.mark.parametrize('is_kept', [False, True])
def test_gradient_of_all_uses_at_once(is_kept):
    """Two sums of messages and the penalty share the gradient of one graph."""
    z, x, h = leaves()
    graph, a = learn(z, x, 3, is_kept), dense(z)
    square = (x.unsqueeze(1) - x).square().sum(dim=2)
    smooth, degree, sparse = FACTORS
    total = a.sum(dim=1)
    expected = (
        (a @ h).sin().sum() / 8
        + (a @ h.square()).cos().sum() / 8
        + smooth / 64 * (a * square).sum() / 2
        - degree / 8 * (total + 1e-12).log().sum()
        + sparse / 64 * a.square().sum()
    )
    found = (
        graph._send(h).sin().sum() / 8
        + graph._send(h.square()).cos().sum() / 8
        + graph.penalty(x.square().sum(dim=1), FACTORS)
    )
    torch.testing.assert_close(found, expected)
    inputs = [z, x, h]
    torch.testing.assert_close(
        torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs)
    )


@pytest.mark.parametrize('case', ['size', 'h weight', 'weight h', 'weight weight'])
def test_second_derivatives_of_the_parts_raise(case, idgl_problem):
    """Also where the gradient that comes in is constant."""
    metric, x = CosineSimilarity(5, heads=1).double(), idgl_problem()[0]
    nodes = Nodes(x, None, None, 0.1, is_smooth=False, cached=False)
    graph = nodes.learn(metric, x, [2])
    h = torch.randn(9, 2).double()
    inputs = {'h': h.requires_grad_(), 'weight': metric.weight}
    first, second = ('weight', 'weight') if case == 'size' else case.split()
    value = graph.size if case == 'size' else graph._send(h).sum()
    (grad,) = torch.autograd.grad(value, inputs[first], create_graph=True)
    with pytest.raises(RuntimeError, match='second derivatives are not implemented'):
        torch.autograd.grad(grad.sum(), inputs[second])


@pytest.mark.parametrize('epsilon', [0.0, 0.2])
@pytest.mark.parametrize(('is_sparse', 'stored'), [(False, 0), (True, 2)])
def test_stored_weights(
    is_sparse, stored, epsilon, in_strips, idgl_model, idgl_problem
):
    in_strips(20, 400)
    num_nodes = 400
    x, y = idgl_problem(num_nodes)
    x = x.relu().to_sparse_csr() if is_sparse else x
    model = idgl_model(max_iterations=10, skip_weight=0.0, epsilon=epsilon)
    sizes = {}

    def note(value):
        sizes[value.data_ptr()] = value.numel()
        return value

    with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        model.loss(x, y, y < 2)
    # Halves of the first graph, and of the products of features.
    half = stored / 2
    assert half * num_nodes**2 <= sum(sizes.values()) < (half + 1.5) * num_nodes**2
