"""The neighbours of a table are the nearest, against distances of all pairs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import seeded
from torch.nn import functional as F

from torch_geometric_gsl import DistanceSimilarity, LinearSimilarity
from torch_geometric_gsl.nn.models.table_net import TableNet
from torch_geometric_gsl.nn.models.table_parts import TableNeighbours
from torch_geometric_gsl.ops import cells, search
from torch_geometric_gsl.ops.pair_scores import PairScores

IN = 16
# The relative error of a squared distance of rows in a precision.
ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-12}


def draw_groups(spread, size=60, num_groups=8, offset=0.0, dtype=torch.float64):
    """Rows in groups of near duplicates, and a target near each third of them."""
    centre = offset + torch.randn(num_groups, IN, generator=seeded()).double()
    noise = torch.randn(2, num_groups * size, IN, generator=seeded(1)).double()
    src = centre.repeat_interleave(size, dim=0) + spread * noise[0]
    src = src[torch.randperm(len(src), generator=seeded(2))]
    dst = (src + spread * noise[1])[::3]
    return src.to(dtype), dst.to(dtype)


def check_nearest(src, dst, k, is_own=False):
    """Compare the listed neighbours with those of all pairs in double precision."""
    # Of a small scale, so that no weight is zero.
    neighbours = TableNeighbours(
        DistanceSimilarity(src.size(1)), eval_k=k, initial_scale=1e-6
    )
    neighbours = neighbours.to(src.dtype).eval()
    z = src if is_own else (src, dst)
    message = torch.eye(len(src), dtype=src.dtype)
    total, graph = neighbours(z, message, return_graph=True)
    dst, src = (src if is_own else dst).double(), src.double()
    apart = (dst.unsqueeze(1) - src).square().sum(dim=2)
    if is_own:
        apart.fill_diagonal_(torch.inf)
    k = min(k, len(src) - int(is_own))
    source, target = graph.edge_index
    assert torch.equal(target, torch.arange(len(dst)).repeat_interleave(k))
    source = source.view(-1, k)
    assert all(len(set(row)) == k for row in source.tolist())
    distance = apart.gather(1, source).sort(dim=1).values
    expected = apart.topk(k, dim=1, largest=False).values
    error = ROUNDING[message.dtype]
    torch.testing.assert_close(distance, expected, rtol=error, atol=0)
    weight = torch.zeros_like(apart).scatter(1, source, 1) * total.double()
    torch.testing.assert_close(weight, total.double(), rtol=0, atol=0)


@pytest.fixture(params=['blocks', 'clusters'])
def algorithm(request, monkeypatch):
    """Compare all pairs in single precision, or search by clusters."""
    monkeypatch.setattr(search, '_FEW', 0)
    if request.param == 'clusters':
        monkeypatch.setattr(search, '_BOUNDED', 0)
        monkeypatch.setattr(cells, '_MIN_ROWS', 1)


@pytest.mark.usefixtures('algorithm')
@pytest.mark.parametrize('dtype', ROUNDING)
@pytest.mark.parametrize('is_own', [True, False])
@pytest.mark.parametrize('spread', [1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
def test_near_duplicates(spread, is_own, dtype):
    check_nearest(*draw_groups(spread, dtype=dtype), 25, is_own)


@pytest.mark.usefixtures('algorithm')
@pytest.mark.parametrize('dtype', ROUNDING)
@pytest.mark.parametrize('offset', [0.0, 1e3, -1e5])
def test_rows_far_from_the_origin(offset, dtype):
    check_nearest(*draw_groups(1e-1, offset=offset, dtype=dtype), 25)


@pytest.mark.usefixtures('algorithm')
@pytest.mark.parametrize('dtype', ROUNDING)
@pytest.mark.parametrize('outlier', [1e4, 1e8, 1e16])
def test_rows_beside_an_outlier(outlier, dtype):
    src, dst = draw_groups(1e-2, dtype=dtype)
    src[7] = outlier
    check_nearest(src, dst, 25)


@pytest.mark.usefixtures('algorithm')
@pytest.mark.parametrize('dtype', ROUNDING)
@pytest.mark.parametrize('size', [3, 40, 120])
def test_exact_duplicates(size, dtype):
    src, dst = draw_groups(0.0, size, dtype=dtype)
    for is_own in (True, False):
        check_nearest(src, dst, 20, is_own)


@given(
    st.integers(1, 40),
    st.integers(1, 30),
    st.integers(1, 50),
    st.integers(0, 2**32),
    st.sampled_from([1.0, 1e-2, 1e-4, 1e-6, 0.0]),
    st.sampled_from([0.0, 50.0]),
    st.sampled_from([*ROUNDING]),
)
def test_any_numbers_of_rows_and_neighbours(
    num_sources, num_targets, k, seed, spread, offset, dtype
):
    generator = seeded(seed)
    centre = offset + torch.randn(3, 4, generator=generator).double()

    def draw(count):
        noise = torch.randn(count, 4, generator=generator).double()
        rows = centre[torch.arange(count) % 3] + spread * noise
        return rows.to(dtype)

    src, dst = draw(num_sources), draw(num_targets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, '_FEW', 0)
        check_nearest(src, dst, k)
        if num_sources > 1:
            check_nearest(src, dst, k, is_own=True)


@pytest.mark.parametrize('dtype', ROUNDING)
def test_near_duplicates_by_their_cosine(dtype):
    src, dst = draw_groups(1e-4, dtype=dtype)
    neighbours = TableNeighbours(LinearSimilarity(IN), eval_k=25).to(dtype).eval()
    _, graph = neighbours((src, dst), torch.eye(480, dtype=dtype), return_graph=True)
    # Of unit rows, whose distances have the order of cosines.
    src, dst = (F.normalize(rows.double()) for rows in (src, dst))
    apart = (dst.unsqueeze(1) - src).square().sum(dim=2)
    distance = apart.gather(1, graph.edge_index[0].view(-1, 25)).sort(dim=1).values
    expected = apart.topk(25, dim=1, largest=False).values
    torch.testing.assert_close(distance, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize('dtype', ROUNDING)
@pytest.mark.parametrize('size', [60, 400])
def test_an_index_finds_the_nearest_keys(size, dtype, monkeypatch):
    monkeypatch.setattr(search, '_FEW', 0)
    net = TableNet(IN, 32, 1, num_frequencies=0, eval_k=25).eval()
    x, new = draw_groups(1e-4, size, dtype=torch.float32)
    # As estimators do: trained in single, and indexed in double precision.
    net, x, new = net.to(dtype), x.to(dtype), new.to(dtype)
    net.index(x, torch.randn(len(x), generator=seeded(), dtype=dtype))
    _, graph = net(new, return_graph=True)
    key = net.lin_key(net.norm(net.encoder(new))).double()
    apart = (key.unsqueeze(1) - net.index_key.double()).square().sum(dim=2)
    distance = apart.gather(1, graph.edge_index[0].view(-1, 25)).sort(dim=1).values
    expected = apart.topk(25, dim=1, largest=False).values
    torch.testing.assert_close(distance, expected, rtol=ROUNDING[dtype], atol=0)


@pytest.mark.parametrize('dtype', ROUNDING)
def test_autocast_compares_keys_in_their_own_precision(dtype, monkeypatch):
    monkeypatch.setattr(search, '_FEW', 0)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        check_nearest(*draw_groups(1e-2, dtype=dtype), 25)


def test_only_uncertain_targets_are_compared_exactly(monkeypatch, spy):
    """Differences of all pairs take several times as long as products."""
    shapes = spy(PairScores, 'best', lambda _, pairs, k: (pairs.dst.size(0), k))
    monkeypatch.setattr(search, '_FEW', 0)
    for spread in (1.0, 1e-4, 0.0):
        check_nearest(*draw_groups(spread), 25)
    assert shapes == []
    # Half of the sources are nearly as near.
    check_nearest(*draw_groups(1e-5, num_groups=2), 25)
    assert shapes == [(40, 25 + search._SPARE)]


@pytest.mark.parametrize('eval_k', [5, 96])
@pytest.mark.parametrize('null_score', [None, 1.0])
@pytest.mark.parametrize('training', [True, False])
def test_sums_over_no_targets_have_a_gradient(training, null_score, eval_k):
    x = torch.randn(20, IN, generator=seeded())
    options = {'num_frequencies': 0, 'null_score': null_score, 'eval_k': eval_k}
    net = TableNet(IN, 8, 1, **options).train(training)
    out = net((x, x[:0]), x[:, 0])
    assert out.shape == (0, 1)
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


MASKS = {
    'none': lambda n: {},
    'one batch': lambda n: {'batch': torch.zeros(n, dtype=torch.long)},
    'own groups': lambda n: {'group': torch.arange(n)},
}


@pytest.mark.parametrize('mask', MASKS)
@pytest.mark.parametrize(
    'options', [{}, {'similarity': 'linear'}, {'null_score': -9.0}]
)
def test_near_rows_are_told_apart_under_masks(options, mask):
    """Products in single precision find 86 % of these neighbours, or fewer."""
    torch.manual_seed(0)
    net = TableNet(6, 64, 1, num_frequencies=0, eval_k=5, **options).eval()
    x = torch.randn(60, 1, 6) + 1e-3 * torch.randn(60, 20, 6)
    x = x.view(-1, 6)
    _, graph = net(x, torch.zeros(1200), return_graph=True, **MASKS[mask](1200))
    assert graph.edge_weight.dtype == torch.float32
    z = net.keys(x).double()
    if 'similarity' in options:
        z = F.normalize(z)
    score = -torch.cdist(z, z, compute_mode='donot_use_mm_for_euclid_dist')
    nearest = score.fill_diagonal_(-torch.inf).topk(5, dim=1).indices
    source, target = graph.edge_index
    is_found = torch.zeros(1200, 1200, dtype=torch.bool)
    is_found[target, source] = True
    assert is_found.gather(1, nearest).all()
