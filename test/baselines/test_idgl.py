from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl.baselines import _neighbour_model
from torch_geometric_gsl.baselines.idgl import nodes as idgl_nodes
from torch_geometric_gsl.baselines.idgl import pairs as idgl_pairs
from torch_geometric_gsl.baselines.idgl.idgl import IDGL
from torch_geometric_gsl.baselines.idgl.idgl_anchor import IDGLAnchor
from torch_geometric_gsl.ops import regularizers

N, IN, HIDDEN, OUT, K = 9, 5, 4, 3, 2
Matrix = list[list[float]]
KINDS = pytest.mark.parametrize('kind', [IDGL, IDGLAnchor])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def problem(num_nodes: int = N) -> tuple[Tensor, Tensor]:
    """Classes around centres, not all features of one sign."""
    y = torch.arange(num_nodes) % OUT
    x = 0.7 * torch.randn(num_nodes, IN, generator=seeded(3), dtype=torch.double)
    x[torch.arange(num_nodes), y] += 1.5
    return x, y


def make(kind: type[IDGL] = IDGL, **kwargs: Any) -> IDGL:
    """A model without noise that iterates three times."""
    torch.manual_seed(5)
    defaults = {'k': K, 'dropout': 0.0, 'delta': 0.0, 'max_iterations': 3}
    if kind is IDGLAnchor:
        defaults |= {'num_anchors': 4, 'smoothness': 0.4, 'sparsity': 0.2}
    sizes = {'num_layers': 2, **defaults, **kwargs}
    return kind(IN, HIDDEN, out_channels=OUT, **sizes).double()


def in_tiles(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Divides graphs into tiles of some rows of double precision."""
    monkeypatch.setattr(idgl_pairs, 'TILE', 8 * rows**2 // torch.get_num_threads())


# The method written out for lists of numbers.


def product(a: Matrix, b: Matrix) -> Matrix:
    columns = list(zip(*b, strict=True))
    return [
        [sum(u * v for u, v in zip(row, column, strict=True)) for column in columns]
        for row in a
    ]


def cosine(u: list[float], v: list[float]) -> float:
    length = math.hypot(*u) * math.hypot(*v)
    inner = sum(a * b for a, b in zip(u, v, strict=True))
    return inner / length if length else 0.0


def metric(h: Matrix, sources: list[int], weight: Matrix, epsilon: float) -> Matrix:
    def weighted(w: list[float], v: list[float]) -> list[float]:
        return [a * b for a, b in zip(w, v, strict=True)]

    def score(i: int, j: int) -> float:
        heads = [cosine(weighted(w, h[i]), weighted(w, h[j])) for w in weight]
        return sum(heads) / len(heads)

    scores = [[score(i, j) for j in sources] for i in range(len(h))]
    return [[s if s > epsilon else 0.0 for s in row] for row in scores]


def row_mean(a: Matrix, h: Matrix) -> Matrix:
    totals = [sum(row) or 1.0 for row in a]
    return [
        [v / total for v in row]
        for row, total in zip(product(a, h), totals, strict=True)
    ]


def along(a: Matrix, h: Matrix, is_anchor: bool) -> Matrix:
    if is_anchor:
        h = row_mean([list(column) for column in zip(*a, strict=True)], h)
    return row_mean(a, h)


def prior(x: Matrix) -> Matrix:
    """The nearest neighbours and the node itself, normalized."""
    n = len(x)
    a = [[float(i == j) for j in range(n)] for i in range(n)]
    for i in range(n):
        others = sorted(
            (j for j in range(n) if j != i), key=lambda j: -cosine(x[i], x[j])
        )
        for j in others[:K]:
            a[i][j] = 1.0
    degree = [sum(row) for row in a]
    return [
        [a[i][j] / math.sqrt(degree[i] * degree[j]) for j in range(n)] for i in range(n)
    ]


def penalty(model: IDGL, x: Matrix, sources: list[int], a: Matrix) -> float:
    if isinstance(model, IDGLAnchor):  # The graph of the anchors.
        shares = [[v / (sum(row) or 1.0) for v in row] for row in a]
        a = product([list(column) for column in zip(*a, strict=True)], shares)
    size = len(sources)
    energy = norm = barrier = 0.0
    for p, i in enumerate(sources):
        for q, j in enumerate(sources):
            square = sum((u - v) ** 2 for u, v in zip(x[i], x[j], strict=True))
            energy += a[p][q] * square / 2
            norm += a[p][q] ** 2
        barrier += math.log(sum(a[p]) + 1e-12)
    return (
        model.smoothness / size**2 * energy
        - model.degree / size * barrier
        + model.sparsity / size**2 * norm
    )


def reference(
    model: IDGL, features: Tensor, y: Tensor, sources: list[int]
) -> tuple[list[Matrix], list[Matrix], float]:
    """The logits and the learned graph of each iteration, and the loss."""
    x: Matrix = features.tolist()
    is_anchor = isinstance(model, IDGLAnchor)
    lins = [lin.weight.t().tolist() for lin in model.lins]
    weights = [metric.weight.tolist() for metric in model.metrics]
    start, eta, skip = prior(x), model.update_weight, model.skip_weight
    graphs: list[Matrix] = []
    outputs: list[Matrix] = []
    losses: list[float] = []
    h = x
    for t in range(model.max_iterations):
        graphs.append(metric(h, sources, weights[min(t, 1)], model.epsilon))
        h = x
        for number, lin in enumerate(lins):
            if number:
                h = [[max(v, 0.0) for v in row] for row in h]
                hidden = h
            h = product(h, lin)
            now, first = (along(a, h, is_anchor) for a in (graphs[-1], graphs[0]))
            before = product(start, h)
            h = [
                [
                    skip * before[i][c]
                    + (1 - skip) * (eta * now[i][c] + (1 - eta) * first[i][c])
                    for c in range(len(h[0]))
                ]
                for i in range(len(x))
            ]
        outputs.append(h)
        logits = [row[c] for row, c in zip(h, y.tolist(), strict=True)]
        total = [math.log(sum(map(math.exp, row))) for row in h]
        entropy = sum(t - v for t, v in zip(total, logits, strict=True)) / len(x)
        losses.append(entropy + penalty(model, x, sources, graphs[-1]))
        h = hidden
    later = losses[1:]
    return outputs, graphs, losses[0] + (sum(later) / len(later) if later else 0.0)


CASES: list[dict[str, Any]] = [
    {},
    {'num_layers': 3, 'num_heads': 3},
    {'epsilon': 0.4, 'update_weight': 0.9, 'num_heads': 2},
    {'skip_weight': 0.0, 'update_weight': 1.0, 'degree': 0.3},
    {'skip_weight': 0.9, 'update_weight': 0.0, 'smoothness': 0.0, 'max_iterations': 1},
    {'smoothness': 3.0, 'degree': 0.0, 'sparsity': 0.0},
    {'smoothness': 0.0, 'degree': 0.7, 'sparsity': 0.0, 'num_heads': 2},
    {'smoothness': 0.0, 'degree': 0.0, 'sparsity': 1.5},
]


@KINDS
@pytest.mark.parametrize('form', ['dense', 'positive', 'sparse'])
@pytest.mark.parametrize('case', CASES, ids=str)
def test_every_equation(
    kind: type[IDGL],
    case: dict[str, Any],
    form: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_tiles(4, monkeypatch)
    if kind is IDGLAnchor:
        case = {'num_anchors': 6, **case}
    model = make(kind, **case)
    x, y = problem()
    x = x if form == 'dense' else x.relu()
    sources = list(range(N))
    if kind is IDGLAnchor:
        sources = sorted(torch.randperm(N, generator=seeded(1))[:6].tolist())
    outputs, graphs, loss = reference(model, x, y, sources)
    given = x.to_sparse_csr() if form == 'sparse' else x
    for number, output in enumerate(outputs):
        model.max_iterations = number + 1
        out = model(given, generator=seeded(1))
        torch.testing.assert_close(out, torch.tensor(output, dtype=torch.double))
    mask = torch.arange(N)
    found = model.loss(given, y, mask, generator=seeded(1))
    assert float(found.detach()) == pytest.approx(loss, rel=1e-9)
    learned = model.graphs(given, generator=seeded(1))
    assert len(learned) == len(graphs)
    for (edge_index, weight), a in zip(learned, graphs, strict=True):
        expected = torch.zeros(N, N, dtype=torch.double)
        for i, row in enumerate(a):
            for j, value in zip(sources, row, strict=True):
                expected[i, j] = value / (sum(row) or 1.0)
        assert edge_index.size(1) == int((expected > 0).sum())
        dense = torch.zeros_like(expected)
        dense[edge_index[1], edge_index[0]] = weight.detach()
        torch.testing.assert_close(dense, expected)


@KINDS
@pytest.mark.parametrize('is_sparse', [False, True])
def test_gradient_of_the_loss(
    kind: type[IDGL], is_sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_tiles(4, monkeypatch)
    model = make(kind, num_heads=2, degree=0.3)
    x, y = problem(6)
    x = x.relu().to_sparse_csr() if is_sparse else x.requires_grad_()
    names = [name for name, _ in model.named_parameters()]
    buffers = dict(model.named_buffers())

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            return self.model.loss(x, y, torch.arange(5), generator=seeded(2))

    def loss(*values: Tensor) -> Tensor:
        state = {f'model.{n}': v for n, v in zip(names, values, strict=False)}
        state |= {f'model.{n}': v for n, v in buffers.items()}
        own = x if is_sparse else values[-1]
        out: Tensor = torch.func.functional_call(Loss(), state, (own,))
        return out

    inputs = (*model.parameters(), *(() if is_sparse else (x,)))
    assert torch.autograd.gradcheck(loss, inputs, fast_mode=True)


def gradients(model: IDGL, x: Tensor, **kwargs: Any) -> list[Tensor]:
    """Those of the loss by all parameters, and by dense features."""
    y, inputs = problem(x.size(0))[1], list(model.parameters())
    if x.requires_grad:
        inputs.append(x)
    loss = model.loss(x, y, y < 2, generator=seeded(1), **kwargs)
    return [loss.detach(), *torch.autograd.grad(loss, inputs)]


@KINDS
@pytest.mark.parametrize('form', ['dense', 'positive', 'zeros', 'sparse'])
def test_tiles(kind: type[IDGL], form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(kind, degree=0.3, num_layers=3, epsilon=0.1)
    x = problem(12)[0]
    x = x if form == 'dense' else x.relu()
    x = x.to_sparse_csr() if form == 'sparse' else x
    # By zeros of features the gradient is that of the threshold.
    x = x.requires_grad_() if form in ('dense', 'zeros') else x
    # Graphs of a batch are not divided into factors.
    one = torch.zeros(12, dtype=torch.long)
    for model.epsilon in (0.1, 0.0):
        expected = gradients(model, x)
        for rows in (1, 5, 12):
            in_tiles(rows, monkeypatch)
            torch.testing.assert_close(gradients(model, x, batch=one), expected)
    # What is wide is computed once.
    monkeypatch.setattr(idgl_pairs, 'WIDE', 0)
    torch.testing.assert_close(gradients(model, x, batch=one), expected)


@KINDS
def test_gradients_that_are_asked_for(kind: type[IDGL]) -> None:
    model, (x, y) = make(kind, degree=0.3), problem()
    loss = model.loss(x.requires_grad_(), y, y < 2)
    inputs = [*model.parameters(), x]
    expected = torch.autograd.grad(loss, inputs, retain_graph=True)
    for value, grad in zip(inputs, expected, strict=True):
        # What the others leave does not count.
        (found,) = torch.autograd.grad(loss, value, retain_graph=True)
        torch.testing.assert_close(found, grad)
    found = torch.autograd.grad(loss, inputs)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('epsilon', [0.0, 0.2])
@pytest.mark.parametrize(('is_sparse', 'stored'), [(False, 0), (True, 2)])
def test_stored_weights(
    is_sparse: bool, stored: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_tiles(100, monkeypatch)
    num_nodes = 400
    x, y = problem(num_nodes)
    x = x.relu().to_sparse_csr() if is_sparse else x
    model = make(max_iterations=10, skip_weight=0.0, epsilon=epsilon)
    sizes: dict[int, int] = {}

    def note(value: Tensor) -> Tensor:
        sizes[value.data_ptr()] = value.numel()
        return value

    with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        model.loss(x, y, y < 2)
    # A half of the first graph, and of the products of features.
    half = num_nodes * (num_nodes + 100) / 2
    assert stored * half <= sum(sizes.values()) < (stored + 2) * half


def test_linear_memory(meter: Any) -> None:
    num_nodes = 2000
    x, y = problem(num_nodes)
    model = make(degree=0.1)
    loop = torch.arange(num_nodes).expand(2, -1)
    with meter() as measured:
        model.loss(x.relu(), y, y < 2, edge_index=loop).backward()
    assert measured.largest < 20 * num_nodes


@pytest.mark.parametrize('is_sparse', [False, True])
def test_cached_products(is_sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idgl_pairs, 'WIDE', 0)
    known = len(idgl_nodes._PRODUCTS)
    kwargs = {'edge_index': torch.zeros(2, 1, dtype=torch.long)}
    model, cached = make(), make(cached=True)
    x = problem()[0]
    features = [x, 2 * x]
    if is_sparse:
        features = [x.relu().to_sparse_csr() for x in features]
    expected = [gradients(model, x, **kwargs) for x in features]
    assert len(idgl_nodes._PRODUCTS) == known
    for _ in range(2):
        found = [gradients(cached, x, **kwargs) for x in features]
        torch.testing.assert_close(found, expected)
        assert len(idgl_nodes._PRODUCTS) == known + 2
    in_tiles(4, monkeypatch)
    found = [gradients(cached, x, **kwargs) for x in features]
    torch.testing.assert_close(found, expected)
    # Features that change in place are others.
    cached.reset_parameters()
    model.load_state_dict(cached.state_dict())
    own = features[0].values() if is_sparse else features[0]
    own *= torch.linspace(0.5, 2, own.size(-1), dtype=own.dtype)
    expected = gradients(model, features[0], **kwargs)
    found = gradients(cached, features[0], **kwargs)
    torch.testing.assert_close(found, expected)
    del features, own, x
    assert len(idgl_nodes._PRODUCTS) == known


def test_penalty_is_that_of_sparse_graphs() -> None:
    kwargs = {'smoothness': 0.0, 'sparsity': 0.0, 'max_iterations': 1}
    x, y = problem()
    model = make(**kwargs)
    plain = model.loss(x, y, torch.arange(N))
    z = model.metrics[0].encode(x)
    weight = (z @ z.t()).relu()
    edge_index = torch.cartesian_prod(torch.arange(N), torch.arange(N)).t().flip(0)
    graph = edge_index, weight.flatten()
    model.smoothness, model.degree, model.sparsity = 0.5, 0.2, 0.1
    expected = (
        0.5 / N * regularizers.smoothness(x, *graph)
        + 0.2 * regularizers.degree_log_barrier(*graph, N)
        + 0.1 / N * regularizers.frobenius(*graph, N)
    )
    found = model.loss(x, y, torch.arange(N)) - plain
    torch.testing.assert_close(found, expected)


def count(model: IDGL, x: Tensor, **kwargs: Any) -> int:
    return len(model.graphs(x, generator=seeded(1), **kwargs))


@KINDS
def test_end_of_the_iteration(kind: type[IDGL]) -> None:
    x = problem()[0]
    model = make(kind, max_iterations=8)
    assert count(model, x) == 8  # delta = 0
    deltas = [0.0, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, math.inf]
    counts = []
    for model.delta in deltas:
        counts.append(count(model, x))
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 2
    assert len(set(counts)) > 3
    model.max_iterations = 1
    assert count(model, x) == 1


def test_rule_that_ends_the_iteration() -> None:
    x, y = problem()
    model = make(max_iterations=8)
    graphs = reference(model, x, y, list(range(N)))[1]

    def square(a: Matrix, b: Matrix | None = None) -> float:
        return sum(
            (a[i][j] - (b[i][j] if b else 0)) ** 2 for i in range(N) for j in range(N)
        )

    change = [
        square(one, two) / square(graphs[0])
        for one, two in zip(graphs[1:], graphs, strict=False)
    ]
    for end, value in enumerate(change, start=2):
        if value < min(change[: end - 2], default=math.inf):
            model.delta = 1.001 * value
            assert count(model, x) == end
            model.delta = 0.999 * value
            assert count(model, x) > end or end == 8


@KINDS
def test_order_of_nodes(kind: type[IDGL], monkeypatch: pytest.MonkeyPatch) -> None:
    model, (x, y), order = make(kind, degree=0.1), problem(), torch.randperm(N)
    anchors = torch.tensor([1, 4, 6])
    if kind is IDGLAnchor:
        monkeypatch.setattr(model, '_anchors', lambda x, generator: anchors)
    out, loss = model(x), model.loss(x, y, y < 2)
    anchors = order.argsort()[anchors]
    torch.testing.assert_close(model(x[order]), out[order])
    torch.testing.assert_close(model.loss(x[order], y[order], y[order] < 2), loss)


@KINDS
def test_graph_to_start_from(kind: type[IDGL]) -> None:
    model, x = make(kind).eval(), problem()[0]
    edge_index, _ = _neighbour_model.nearest_neighbours(x, K)
    expected = model(x)
    torch.testing.assert_close(model(x, edge_index), expected)
    weight = torch.full((edge_index.size(1),), 2.0, dtype=torch.double)
    assert not torch.allclose(model(x, edge_index, edge_weight=weight), expected)
    torch.testing.assert_close(model(x, edge_index, edge_weight=weight / 2), expected)
    # It does not limit the learned graphs.
    few = edge_index[:, :1]
    assert model.graphs(x, few)[0].edge_index.size(1) > 1
    # Nor is it needed.
    model.skip_weight, model.k = 0.0, N
    assert model(x).shape == (N, OUT)


@KINDS
def test_dropout(kind: type[IDGL]) -> None:
    x = problem()[0]
    inputs: list[Tensor] = []
    model = make(kind, dropout=0.5, iteration_dropout=0.0)
    model.lins[1].register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model(x.repeat(20, 1) + torch.randn(20 * N, IN, dtype=torch.double))
    zeros = [float((h == 0).double().mean()) for h in inputs]
    assert zeros[0] > 0.4
    assert max(zeros[1:]) < zeros[0] - 0.2
    inputs.clear()
    model.iteration_dropout = 0.75
    model(x.repeat(20, 1) + torch.randn(20 * N, IN, dtype=torch.double))
    assert min(float((h == 0).double().mean()) for h in inputs[1:]) > 0.7
    model.eval()
    assert torch.equal(model(x), model(x))


@KINDS
def test_rows_of_zeros(kind: type[IDGL]) -> None:
    x, y = problem()
    x[2] = 0
    for given in (x, x.to_sparse_csr()):
        model = make(kind, degree=0.1, skip_weight=0.0)
        loss = model.loss(given, y, torch.arange(N), generator=seeded(1))
        loss.backward()
        assert bool(loss.isfinite())
        for parameter in model.parameters():
            assert parameter.grad is not None
            assert bool(parameter.grad.isfinite().all())
        assert not bool((model.graphs(given)[0].edge_index[1] == 2).any())


@KINDS
@pytest.mark.parametrize('factor', [1e-30, 1e30])
def test_length_of_features(kind: type[IDGL], factor: float) -> None:
    x = problem()[0].float().relu()
    model = make(kind, max_iterations=1).float().eval()
    expected = model.graphs(x)[0].edge_weight
    for given in (factor * x, (factor * x).to_sparse_csr()):
        torch.testing.assert_close(model.graphs(given)[0].edge_weight, expected)


@KINDS
def test_one_node(kind: type[IDGL]) -> None:
    x = problem()[0][:1]
    assert make(kind, skip_weight=0.0)(x).shape == (1, OUT)
    loop = torch.zeros(2, 1, dtype=torch.long)
    assert make(kind)(x, loop).shape == (1, OUT)


@KINDS
def test_autocast(kind: type[IDGL]) -> None:
    model, (x, y) = make(kind).float(), problem()
    exact = model(x.float(), generator=seeded(1))
    with torch.autocast('cpu', dtype=torch.bfloat16):
        out = model(x.float(), generator=seeded(1))
        loss = model.loss(x.float(), y, torch.arange(N))
    assert not torch.equal(out.float(), exact)
    torch.testing.assert_close(out.float(), exact, rtol=0.2, atol=0.2)
    loss.backward()
    # What is added to the cross-entropy is computed in full precision.
    model.max_iterations = 1
    added = []
    for enabled in (False, True):
        with torch.autocast('cpu', dtype=torch.bfloat16, enabled=enabled):
            out = model(x.float(), generator=seeded(1))
            loss = model.loss(x.float(), y, torch.arange(N), generator=seeded(1))
            added.append(loss - F.cross_entropy(out, y))
    torch.testing.assert_close(*added, rtol=1e-5, atol=1e-6)


@KINDS
@pytest.mark.parametrize('epsilon', [0.0, 0.3])
def test_graphs_inside_of_autocast(kind: type[IDGL], epsilon: float) -> None:
    """They are those of full precision, where no hidden features are compared."""
    model, x = make(kind, epsilon=epsilon, max_iterations=1).float(), problem()[0]
    (expected,) = model.graphs(x.float(), generator=seeded(1))
    with torch.autocast('cpu', dtype=torch.bfloat16):
        (found,) = model.graphs(x.float(), generator=seeded(1))
    assert torch.equal(found.edge_index, expected.edge_index)
    torch.testing.assert_close(found.edge_weight, expected.edge_weight)
