from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.utils import to_dense_adj

from torch_geometric_gsl.nn.models._neighbours import nearest_neighbours
from torch_geometric_gsl.nn.models._slaps_parts import Edges, _nearest_rows
from torch_geometric_gsl.nn.models.slaps import SLAPS
from torch_geometric_gsl.ops.masking import mask_features
from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.typing import SampledGraph, is_sorted_by_target

N, IN, HIDDEN, OUT, K = 9, 5, 4, 3, 3
GENERATORS = pytest.mark.parametrize('graph_generator', ['mlp', 'mlp_d'])
LAYOUTS = pytest.mark.parametrize('layout', ['dense', 'sparse'])
Matrix = list[list[float]]


def words(n: int = N, width: int = IN, seed: int = 0) -> Tensor:
    """Words of positive weight, and a node without any."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, width, generator=generator, dtype=torch.float64) + 0.1
    x = x * (torch.rand(n, width, generator=generator) < 0.6)
    x[:, 0] += 0.1
    x[2] = 0
    return x


def as_layout(x: Tensor, layout: str) -> Tensor:
    return x if layout == 'dense' else x.to_sparse_csr()


def build(randomize: bool = True, **options: Any) -> SLAPS:
    """A small model with parameters that are no longer those of its beginning."""
    settings: dict[str, Any] = {'k': K, 'denoising_channels': 6, **options}
    torch.manual_seed(7)
    model = SLAPS(IN, HIDDEN, 2, OUT, **settings).double().eval()
    if randomize:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn_like(parameter) / 2
    return model


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def matrix(graph: SampledGraph, n: int = N) -> Tensor:
    """Row i holds the weights of the sources of node i."""
    edge_index = graph.edge_index.flip(0)
    return to_dense_adj(edge_index, edge_attr=graph.edge_weight, max_num_nodes=n)[0]


def product(a: Matrix, b: Matrix) -> Matrix:
    return [
        [
            math.fsum(u * v for u, v in zip(row, column, strict=True))
            for column in zip(*b, strict=True)
        ]
        for row in a
    ]


def embed(model: SLAPS, x: Matrix, graph_generator: str, act: str) -> Matrix:
    squash: Callable[[float], float] = (
        math.tanh if act == 'tanh' else lambda v: max(0.0, v)
    )
    state = {
        name: value.tolist()
        for name, value in model.graph_generator.state_dict().items()
    }
    if graph_generator == 'mlp_d':
        first, second = state['weight']
        return [
            [squash(v * a) * b for v, a, b in zip(row, first, second, strict=True)]
            for row in x
        ]
    h = [
        [
            squash(math.fsum(w * v for w, v in zip(ws, row, strict=True)) + b)
            for ws, b in zip(state['first.weight'], state['first.bias'], strict=True)
        ]
        for row in x
    ]
    return [
        [
            math.fsum(w * v for w, v in zip(ws, row, strict=True)) + b
            for ws, b in zip(state['second.weight'], state['second.bias'], strict=True)
        ]
        for row in h
    ]


def adjacency(z: Matrix, k: int) -> Matrix:
    n = len(z)
    length = [math.hypot(*row) for row in z]
    kept = [[0.0] * n for _ in range(n)]
    for i in range(n):
        row = []
        for j in range(n):
            dot = math.fsum(a * b for a, b in zip(z[i], z[j], strict=True))
            size = length[i] * length[j]
            row.append(dot / size if size else 0.0)
        best = sorted(range(n), key=lambda j: -row[j])[: k + 1]
        for j in best:
            kept[i][j] = max(0.0, row[j])
    both = [[(kept[i][j] + kept[j][i]) / 2 for j in range(n)] for i in range(n)]
    degree = [sum(row) for row in both]
    return [
        [
            both[i][j] / math.sqrt(degree[i] * degree[j]) if both[i][j] else 0.0
            for j in range(n)
        ]
        for i in range(n)
    ]


def gcn(layers: list[Any], a: Matrix, h: Matrix) -> Matrix:
    for number, layer in enumerate(layers):
        h = product(a, product(h, layer.lin.weight.t().tolist()))
        bias = layer.bias.tolist()
        h = [[v + b for v, b in zip(row, bias, strict=True)] for row in h]
        if number + 1 < len(layers):
            h = [[max(0.0, v) for v in row] for row in h]
    return h


@LAYOUTS
@GENERATORS
@pytest.mark.parametrize('act', ['tanh', 'relu'])
def test_graph_and_output_against_loops(
    layout: str, graph_generator: str, act: str
) -> None:
    model = build(graph_generator=graph_generator, graph_act=act)
    x = words()
    expected = adjacency(embed(model, x.tolist(), graph_generator, act), K)
    (graph,) = model.graphs(as_layout(x, layout))
    assert is_sorted_by_target(graph.edge_index)
    assert torch.unique(graph.edge_index, dim=1).shape == graph.edge_index.shape
    torch.testing.assert_close(matrix(graph), torch.tensor(expected).double())
    out = gcn(list(model.classifier), expected, x.tolist())
    torch.testing.assert_close(
        model(as_layout(x, layout)), torch.tensor(out, dtype=torch.float64)
    )


@LAYOUTS
@GENERATORS
@pytest.mark.parametrize('binary', [True, False])
def test_denoising_loss_against_loops(
    layout: str, graph_generator: str, binary: bool
) -> None:
    model = build(
        graph_generator=graph_generator, binary=binary, mask_ratio=2, negative_ratio=1
    )
    x = words()
    loss = model.denoising_loss(as_layout(x, layout), generator=seeded(3))
    masked = mask_features(x, 2, 1 if binary else None, generator=seeded(3))
    a = adjacency(embed(model, x.tolist(), graph_generator, 'tanh'), K)
    layers = [model.denoiser.first, model.denoiser.last]
    out = gcn(layers, a, masked.x.tolist())
    terms = []
    for i, j in zip(masked.row.tolist(), masked.column.tolist(), strict=True):
        if binary:
            p = 1 / (1 + math.exp(-out[i][j]))
            terms.append(-math.log(p if x[i, j] > 0 else 1 - p))
        else:
            terms.append((out[i][j] - float(x[i, j])) ** 2)
    assert len(terms) > 5
    assert loss.item() == pytest.approx(math.fsum(terms) / len(terms))


@LAYOUTS
@GENERATORS
def test_loss_is_the_sum_of_both(layout: str, graph_generator: str) -> None:
    model = build(graph_generator=graph_generator, denoising_weight=3.5)
    x, y = as_layout(words(), layout), torch.arange(N) % OUT
    mask = torch.tensor([0, 3, 4])
    loss = model.loss(x, y, mask, generator=seeded())
    expected = F.cross_entropy(model(x)[mask], y[mask])
    expected = expected + 3.5 * model.denoising_loss(x, generator=seeded())
    torch.testing.assert_close(loss, expected)
    # Labels of other nodes are not read; a mask selects as indices do.
    other = torch.full((N,), -100).index_copy(0, mask, y[mask])
    is_labelled = torch.zeros(N, dtype=torch.bool).index_fill(0, mask, True)
    again = model.loss(x, other, is_labelled, generator=seeded())
    torch.testing.assert_close(again, loss)


@LAYOUTS
@GENERATORS
@pytest.mark.parametrize('binary', [True, False])
def test_gradient_of_the_loss(layout: str, graph_generator: str, binary: bool) -> None:
    model = build(graph_generator=graph_generator, binary=binary, mask_ratio=2)
    x, y = as_layout(words(), layout), torch.arange(N) % OUT
    names = [name for name, _ in model.named_parameters()]

    def loss(*values: Tensor) -> Tensor:
        state = dict(zip(names, values, strict=True))
        options = {'generator': seeded()}
        return torch.func.functional_call(
            Loss(model), {f'model.{k}': v for k, v in state.items()}, (x, y, options)
        )

    values = [value.detach().clone().requires_grad_() for value in model.parameters()]
    assert torch.autograd.gradcheck(loss, values, fast_mode=True)
    loss(*values).backward()
    for name, value in zip(names, values, strict=True):
        assert value.grad is not None, name
        assert float(value.grad.abs().max()) > 0, name


class Loss(torch.nn.Module):
    def __init__(self, model: SLAPS) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, y: Tensor, options: dict[str, Any]) -> Tensor:
        return self.model.loss(x, y, torch.arange(4), **options)


@GENERATORS
def test_the_autoencoder_alone_teaches_the_graph(graph_generator: str) -> None:
    model = build(graph_generator=graph_generator).train()
    model.denoising_loss(words()).backward()
    for parameter in model.graph_generator.parameters():
        assert parameter.grad is not None
        assert float(parameter.grad.abs().max()) > 0
    assert all(parameter.grad is None for parameter in model.classifier.parameters())


def test_hidden_features_do_not_reach_the_autoencoder() -> None:
    model = build(mask_ratio=2.0, negative_ratio=1.0).train()
    x, seen = words(), []
    model.denoiser.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    for layout in ('dense', 'sparse'):
        model.denoising_loss(as_layout(x, layout))
        masked = seen.pop()
        assert masked.target.any()
        assert not masked.x.to_dense()[masked.row, masked.column].any()
        assert torch.equal(masked.target > 0, x[masked.row, masked.column] > 0)


@GENERATORS
def test_it_begins_as_the_nearest_neighbours(graph_generator: str) -> None:
    # Identity, and relu on what is not negative: embeddings are the features.
    model = build(False, graph_generator=graph_generator, graph_act='relu')
    x = words()
    a = matrix(nearest_neighbours(x, K + 1, loop=True))
    a = (a + a.t()) / 2
    scale = a.sum(dim=1).where(a.sum(dim=1) > 0, torch.ones(())).rsqrt()
    expected = scale.unsqueeze(1) * a * scale
    torch.testing.assert_close(matrix(model.graphs(x)[0]), expected)


@LAYOUTS
@GENERATORS
def test_order_of_nodes_does_not_matter(layout: str, graph_generator: str) -> None:
    model, x = build(graph_generator=graph_generator), words(20, seed=1)
    order = torch.randperm(20)
    out = model(as_layout(x, layout))
    torch.testing.assert_close(model(as_layout(x[order], layout)), out[order])


@LAYOUTS
@GENERATORS
def test_batch(layout: str, graph_generator: str) -> None:
    # The second graph has fewer nodes than neighbours, the third but one.
    sizes = [7, 3, 1, 8]
    model, x = build(graph_generator=graph_generator), words(sum(sizes), seed=2)
    batch = torch.arange(4).repeat_interleave(torch.tensor(sizes))
    out = model(as_layout(x, layout), batch=batch)
    (graph,) = model.graphs(as_layout(x, layout), batch=batch)
    assert torch.equal(batch[graph.edge_index[0]], batch[graph.edge_index[1]])
    start = 0
    for size in sizes:
        part = as_layout(x[start : start + size], layout)
        small = build(graph_generator=graph_generator, k=max(1, min(K, size - 1)))
        if size > 1:
            torch.testing.assert_close(out[start : start + size], small(part))
        start += size
    loss = model.loss(as_layout(x, layout), batch % OUT, batch == 0, batch=batch)
    assert bool(loss.isfinite())


@LAYOUTS
@GENERATORS
def test_all_nodes_and_equal_nodes(layout: str, graph_generator: str) -> None:
    model = build(graph_generator=graph_generator, k=N - 1)
    (graph,) = model.graphs(as_layout(words(), layout))
    assert torch.equal(matrix(graph) > 0, matrix(graph).t() > 0)
    expected = adjacency(embed(model, words().tolist(), graph_generator, 'tanh'), N - 1)
    torch.testing.assert_close(matrix(graph), torch.tensor(expected).double())
    x = torch.ones(6, IN, dtype=torch.float64)
    out = build(graph_generator=graph_generator)(as_layout(x, layout))
    assert bool(out.isfinite().all())


@LAYOUTS
@GENERATORS
def test_nodes_without_features(layout: str, graph_generator: str) -> None:
    model = build(False, graph_generator=graph_generator)
    x = torch.zeros(N, IN, dtype=torch.float64)
    x[0, 0] = 1
    loss = model.loss(as_layout(x, layout), torch.arange(N) % OUT, torch.arange(N))
    loss.backward()
    assert bool(loss.isfinite())
    for parameter in model.parameters():
        if parameter.grad is not None:
            assert bool(parameter.grad.isfinite().all())


@LAYOUTS
def test_dtypes_and_strides(layout: str) -> None:
    x = words(12)
    expected = build()(as_layout(x, layout))
    single = build().float()
    out = single(as_layout(x.float(), layout))
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-4)
    if layout == 'dense':
        torch.testing.assert_close(build()(x.t().contiguous().t()), expected)
    half = build().bfloat16()
    loss = half.loss(
        as_layout(x.bfloat16(), layout), torch.arange(12) % OUT, torch.arange(6)
    )
    assert loss.dtype == torch.bfloat16
    assert (
        half.graphs(as_layout(x.bfloat16(), layout))[0].edge_weight.dtype == loss.dtype
    )
    loss.backward()
    assert bool(half.classifier[0].bias.grad.isfinite().all())


@pytest.mark.parametrize('is_batch', [False, True])
def test_blocks_of_rows(is_batch: bool) -> None:
    z = words(30)
    batch = torch.arange(30) // 12 if is_batch else None
    whole, rows = (_nearest_rows(z, K, batch, budget) for budget in (2**25, 1))
    assert torch.equal(rows, whole)
    assert rows[1].unique(return_counts=True)[1].tolist() == [K] * 30


@LAYOUTS
def test_autocast_finds_the_same_graph(layout: str) -> None:
    # Without a projection, nothing is rounded.
    model = build(graph_generator='mlp_d').float()
    x = as_layout(words(200).float(), layout)
    (expected,) = model.graphs(x)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        (found,) = model.graphs(x)
    assert torch.equal(found.edge_index, expected.edge_index)
    torch.testing.assert_close(found.edge_weight, expected.edge_weight)


@LAYOUTS
def test_numbers_of_graphs_may_be_large(layout: str) -> None:
    model, x = build(), as_layout(words(), layout)
    batch = torch.arange(N) // 5
    expected = model(x, batch=batch)
    torch.testing.assert_close(model(x, batch=batch * 10**15), expected)


def test_evaluation_is_not_random() -> None:
    model, x = build(), words()
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))
    assert torch.equal(
        model.graphs(x)[0].edge_weight, model.eval().graphs(x)[0].edge_weight
    )


def test_a_generator_decides() -> None:
    model, x = build(dropout=0.0).train(), words(30)
    y, mask = torch.arange(30) % OUT, torch.arange(10)
    state = torch.get_rng_state()
    for call in (
        lambda seed: model(x, generator=seeded(seed)),
        lambda seed: model.denoising_loss(x, generator=seeded(seed)),
        lambda seed: model.loss(x, y, mask, generator=seeded(seed)),
    ):
        assert torch.equal(call(1), call(1))
        assert not torch.equal(call(1), call(2))
    assert torch.equal(torch.get_rng_state(), state)
    # Without one, the global generator does.
    losses = []
    for _ in range(2):
        torch.manual_seed(5)
        losses.append(model.loss(x, y, mask))
    assert torch.equal(losses[0], losses[1])


def test_dropout_of_edges() -> None:
    stats = pytest.importorskip('scipy.stats')
    count = 20_000
    neighbours = Neighbours(torch.zeros(1, count, dtype=torch.long), num_sources=1)
    edges = Edges(neighbours, torch.linspace(1, 2, count))
    for probability in (0.25, 0.5):
        dropped = edges.drop(probability, seeded()).weight
        zeros = dropped == 0
        # A two-sided test that errs once in 100,000.
        assert stats.binomtest(int(zeros.sum()), count, probability).pvalue > 1e-5
        expected = edges.weight[~zeros] / (1 - probability)
        torch.testing.assert_close(dropped[~zeros], expected)
    assert edges.drop(0.0, None) is edges


def test_each_network_has_its_dropout() -> None:
    x = words()
    for options, changes in (
        ({'adjacency_dropout': (0.5, 0.0), 'dropout': 0.0}, (True, False)),
        ({'adjacency_dropout': (0.0, 0.5), 'dropout': 0.0}, (False, True)),
        ({'adjacency_dropout': 0.0, 'dropout': (0.5, 0.0)}, (True, False)),
        ({'adjacency_dropout': 0.0, 'dropout': (0.0, 0.5)}, (False, True)),
        ({'adjacency_dropout': 0.0, 'dropout': 0.0}, (False, False)),
    ):
        model = build(mask_ratio=1.0, **options)
        quiet = (model.denoising_loss(x), model(x))
        model.train()
        loud = (model.denoising_loss(x), model(x))
        differ = tuple(not torch.equal(a, b) for a, b in zip(quiet, loud, strict=True))
        assert differ == changes


def test_training_finds_the_classes() -> None:
    # Two topics with words of their own; three labels each.
    torch.manual_seed(0)
    y = torch.arange(60) % 2
    topic = torch.stack([torch.arange(20) < 10, torch.arange(20) >= 10]).float()
    x = (torch.rand(60, 20) < 0.05 + 0.2 * topic[y]).float()
    model = SLAPS(20, 8, 2, 2, k=5, denoising_channels=16, adjacency_dropout=0.2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    mask = torch.arange(6)
    before = model.eval().denoising_loss(x, generator=seeded()).item()
    for _ in range(60):
        model.train()
        optimizer.zero_grad()
        model.loss(x, y, mask).backward()
        optimizer.step()
    model.eval()
    assert model.denoising_loss(x, generator=seeded()).item() < before - 0.02
    assert float((model(x).argmax(dim=1) == y)[6:].float().mean()) > 0.8


@pytest.mark.parametrize(
    ('options', 'error', 'text'),
    [
        ({'k': 0}, ValueError, r"'k' must be at least 1 \(got 0\)"),
        (
            {'graph_generator': 'x'},
            ValueError,
            r"'graph_generator' must be one of \['ml",
        ),
        (
            {'graph_act': 'elu'},
            ValueError,
            r"'graph_act' must be one of \['tanh', 'relu",
        ),
        ({'binary': 1}, TypeError, r"'binary' must be a bool \(got 1\)"),
        (
            {'mask_ratio': 0.5},
            ValueError,
            r"'mask_ratio' must be at least 1 \(got 0.5\)",
        ),
        ({'negative_ratio': -1}, ValueError, r"'negative_ratio' must be at least 0"),
        (
            {'denoising_weight': -1},
            ValueError,
            r"'denoising_weight' must be at least 0",
        ),
        ({'denoising_weight': 'a'}, TypeError, r"'denoising_weight' must be a number"),
        (
            {'denoising_channels': 0},
            ValueError,
            r"'denoising_channels' must be at least",
        ),
        ({'dropout': 1.0}, ValueError, r"'dropout' must lie in \[0, 1\) \(got 1.0\)"),
        ({'dropout': (0.1,)}, ValueError, r"'dropout' must be a number or a pair"),
        (
            {'adjacency_dropout': (0, -1)},
            ValueError,
            r"'adjacency_dropout' must lie in",
        ),
    ],
)
def test_options_are_checked(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        SLAPS(IN, HIDDEN, 2, OUT, **options)


def test_sizes_are_checked() -> None:
    for sizes, text in (
        ((-1, 4, 2, 3), r"'in_channels' must be at least 1 \(got -1\)"),
        ((5, 0, 2, 3), "'hidden_channels' must be at least 1"),
        ((5, 4, 0, 3), "'num_layers' must be at least 1"),
        ((5, 4, 2, 0), "'out_channels' must be at least 1"),
    ):
        with pytest.raises(ValueError, match=text):
            SLAPS(*sizes)


def test_inputs_are_checked() -> None:
    model, x = build(), words()
    cases: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: model(x[:, :3]), ValueError, "'x' must have 5 channels"),
        (lambda: model(x.float()), TypeError, "'x' has torch.float32 but"),
        (lambda: model(x / 0), ValueError, "'x' contains NaN or infinite"),
        (
            lambda: model(x, torch.zeros(2, 3, dtype=torch.long)),
            ValueError,
            "'edge_index' has no meaning for SLAPS, which takes no candidates",
        ),
        (lambda: model(x[:K]), ValueError, r"'k' .* \(got k=3 for 2 candidates\)"),
        (lambda: model(x[:1]), ValueError, r"'k' .* \(got k=3 for 0 candidates\)"),
        (lambda: model(x, batch=torch.ones(3).long()), ValueError, "'batch' must have"),
        (
            lambda: model.denoising_loss(x - 1),
            ValueError,
            r"'x' must not be negative where 'binary' is True \(got -1.0\)",
        ),
        (
            lambda: model.denoising_loss((x - 1).to_sparse_csr()),
            ValueError,
            "'x' must not be negative where",
        ),
        (lambda: model(x, generator=3), TypeError, "'generator' must be a torch.Gen"),
    ]
    for call, error, text in cases:
        with pytest.raises(error, match=text):
            call()
    assert bool(build(binary=False).denoising_loss(x - 1).isfinite())
    assert str(model) == 'SLAPS(5, 4, num_layers=2, out_channels=3, k=3)'


def test_nothing_hidden() -> None:
    loss = build(mask_ratio=1e9).denoising_loss(words())
    assert loss.item() == 0
    loss.backward()
