"""The table net: its index, similarities, columns, and rows that have no neighbours."""

import math

import pytest
import torch
from oracles import seeded
from table_nets import HIDDEN, IN, draw_rows, make

from torch_geometric_gsl import DistanceSimilarity
from torch_geometric_gsl.nn.embeddings import ColumnEncoder
from torch_geometric_gsl.nn.models.table_net import TableNet
from torch_geometric_gsl.nn.models.table_parts import TableNeighbours
from torch_geometric_gsl.ops import cells, search
from torch_geometric_gsl.ops.scores import Negative

N = 30


@pytest.mark.parametrize('is_own', [True, False])
def test_clusters_find_the_same_neighbours(is_own, monkeypatch):
    net, (x, y) = make(eval_k=7).eval(), draw_rows(300)
    rows = x if is_own else (x, x[:200] + 0.1)
    expected = net(rows, y)
    monkeypatch.setattr(search, '_BOUNDED', 0)
    monkeypatch.setattr(search, '_without_bounds', None)  # It compares all pairs.
    monkeypatch.setattr(cells, '_MIN_ROWS', 1)
    torch.testing.assert_close(net(rows, y), expected)


@pytest.mark.parametrize('eval_k', [7, 96])
def test_outputs_and_distances_of_one_search(eval_k):
    x, y, new = torch.randn(50, 4), torch.randn(50, 1), torch.randn(9, 4)
    net = TableNet(4, 8, 1, eval_k=eval_k).eval()
    with pytest.raises(ValueError, match=r"'x' needs indexed rows: call 'index' befo"):
        net.with_distance(new)
    net.index(x, y)
    out, distance = net.with_distance(new)
    torch.testing.assert_close(out, net(new))
    torch.testing.assert_close(distance, net.distance_to_sources(new))
    keys, every = net.keys(new), net.keys(x)
    expected = torch.cdist(keys.double(), every.double()).square().amin(dim=1)
    expected = net.neighbours.sampler.factor * expected
    torch.testing.assert_close(distance.double(), expected.double(), rtol=1e-4, atol=0)


def test_index():
    net, (x, y), (new, _) = make().eval(), draw_rows(), draw_rows(6, seed=5)
    expected = net((x, new), y)
    assert net.index(x, y) is net
    torch.testing.assert_close(net(new), expected)
    # Own labels and pairs take no indexed rows.
    plain = make().eval()
    torch.testing.assert_close(net(x, y), plain(x, y))
    torch.testing.assert_close(net((x, new)), plain((x, new)))
    net.reset_parameters()
    assert net.index_key is None


def test_unknown_labels():
    net, (x, y) = make(), draw_rows()
    unknown = torch.full_like(y, math.nan)
    torch.testing.assert_close(net(x, unknown), net(x))
    with pytest.raises(ValueError, match=r'one label for each of the 30 sources'):
        net(x, y[:5])
    for wrong in (y[:5], torch.cat([y, y])):
        with pytest.raises(
            ValueError, match="'y' must have one label for each of the 30"
        ):
            net.index(x, wrong)


@pytest.mark.parametrize('draws', [None, 2])
@pytest.mark.parametrize('training', [True, False])
def test_a_row_alone_is_answered(training, draws):
    net, (x, y) = make(draws=draws).train(training), draw_rows(1)
    out, graph = net(x, y, return_graph=True)
    assert out.shape == (1, 1)
    assert graph.edge_index.shape == (2, 0)
    torch.testing.assert_close(net(x, y), out)
    assert net(x[:0], y[:0]).shape == (0, 1)
    # It is answered so beside no sources, too.
    pair = x[:0], x
    result, graph = net(pair, y[:0], return_graph=True)
    assert graph.edge_index.shape == (2, 0)
    torch.testing.assert_close(result, out)


def test_without_a_graph():
    net, (x, y) = make(graph='none'), draw_rows()
    assert torch.equal(net(x, y), net(x))
    assert net.index(x, y).index_message is None
    assert net(x, return_graph=True)[1].edge_index.shape == (2, 0)


@pytest.mark.parametrize('similarity', ['cosine', 'uniform', 'gaussian'])
def test_other_similarities(similarity):
    net, (x, y) = make(similarity=similarity, draws=2), draw_rows()
    out, graph = net(x, y, return_graph=True)
    out.sum().backward()
    assert graph.edge_index.size(1) == N * (N - 1)
    with torch.no_grad():
        few, every = (make(similarity=similarity, eval_k=k).eval() for k in (29, 30))
        torch.testing.assert_close(few(x, y), every(x, y))


class Root(Negative):
    @staticmethod
    def value(distance):
        return -distance.sqrt()


class OfUser(DistanceSimilarity):
    def response(self, z):
        return Root() if self.comparison == 'squared_distance' else Negative()


@pytest.mark.parametrize('comparison', ['dot', 'squared_distance'])
@pytest.mark.parametrize('k', [6, 10**6])
@pytest.mark.parametrize('training', [True, False])
def test_similarities_of_users(training, k, comparison):
    similarity, z = OfUser(3), torch.randn(20, 3, generator=seeded()).double()
    similarity.comparison = comparison
    neighbours = TableNeighbours(similarity, graph_dropout=0.0, eval_k=k).double()
    score = similarity(z).fill_diagonal_(-torch.inf)
    if not training and k < 20:
        least = score.topk(k, dim=1).values[:, -1:]
        score = score.masked_fill(score < least, -torch.inf)
    weight, _ = neighbours.train(training)(z, torch.eye(20).double())
    torch.testing.assert_close(weight, score.softmax(dim=1))


def test_columns_that_are_embedded():
    pytest.importorskip('rtdl_num_embeddings')
    encoder = ColumnEncoder(3, 4, num_frequencies=2, periodic_columns=[2, 0])
    x = torch.randn(5, 3)
    frequencies = encoder.periodic.periodic.weight
    linear = encoder.periodic.linear
    columns = [x]
    for i, column in enumerate([2, 0]):
        angle = 2 * math.pi * frequencies[i] * x[:, column : column + 1]
        wave = torch.cat([angle.cos(), angle.sin()], dim=1)
        columns.append(wave @ linear.weight[i] + linear.bias[i])
    expected = torch.cat(columns, dim=1) @ encoder.lin.weight.t() + encoder.lin.bias
    torch.testing.assert_close(encoder(x), expected)
    assert TableNet(IN, HIDDEN, 1, periodic_columns=[]).encoder.periodic is None


def test_columns_that_are_not_embedded():
    encoder = ColumnEncoder(3, 4, num_frequencies=0)
    x = torch.randn(5, 3)
    torch.testing.assert_close(encoder(x), encoder.lin(x))
    torch.testing.assert_close(encoder(x.to_sparse_csr()), encoder.lin(x))
    with pytest.raises(ValueError, match="'embedding_channels' must be at least 1"):
        ColumnEncoder(3, 4, embedding_channels=0)


def test_sparse_rows_and_blocks_of_rows(monkeypatch):
    net, (x, y) = make(), draw_rows()
    x = x * (x > 0)
    expected = net(x, y)
    torch.testing.assert_close(net(x.to_sparse_csr(), y), expected)
    monkeypatch.setattr('torch_geometric_gsl.nn.models.table_net._BLOCK', 7)
    expected = net.eval()((x, x[:4]), y)
    for rows in (x, x.to_sparse_csr()):
        torch.testing.assert_close(net.index(rows, y)(x[:4]), expected)


def test_no_new_rows():
    x, y, net = torch.randn(50, 4), torch.randn(50, 2), TableNet(4, 8, 2).eval()
    assert net((x, x[:0]), y).shape == (0, 2)


BAD_VECTORS = [
    ('batch', torch.arange(20) % 2, ValueError, "'batch' must be sorted"),
    ('batch', torch.zeros(19).long(), ValueError, "'batch' must have one entry"),
    ('group', torch.zeros(1).long(), ValueError, "'group' must have one entry"),
    ('group', [0] * 20, TypeError, "'group' must be a torch.Tensor"),
    ('order', torch.zeros(20, 1), ValueError, r"'order' must have shape \[num_nodes\]"),
    ('group', torch.full((20,), torch.nan), ValueError, "'group' must not contain NaN"),
    ('order', torch.full((20,), torch.nan), ValueError, "'order' must not contain NaN"),
]


@pytest.mark.parametrize(('name', 'value', 'error', 'text'), BAD_VECTORS)
def test_bad_vectors(name, value, error, text):
    net = TableNet(3, 8, 1, num_frequencies=0)
    with pytest.raises(error, match=text):
        net(torch.randn(20, 3), torch.randn(20), **{name: value})


def test_bad_rows_and_options():
    net, x = TableNet(3, 8, 1, num_frequencies=0), torch.randn(20, 3)
    with pytest.raises(TypeError, match=r"'x' must be a torch.Tensor"):
        net.index((x, x))
    with pytest.raises(TypeError, match=r"'x' has torch\.float64 but the parameters"):
        net.index(x.double())
    net.index(x)
    methods = net.keys, net.without_neighbours, net.distance_to_sources
    for method in (*methods, net.with_distance):
        with pytest.raises(ValueError, match="'x' must have 3 channels"):
            method(x[:, :2])
        with pytest.raises(TypeError, match=r"'x' has torch\.float64"):
            method(x.double())
    y = torch.zeros(20)
    y[3] = torch.inf
    for call in (net, net.index):
        with pytest.raises(ValueError, match="'y' must be finite, or NaN where"):
            call(x, y)
    with pytest.raises(TypeError, match=r"'y' must hold classes .* \(got int\)"):
        net.index(x, 5)
    for columns in ([3], [1, 1], [-1], [0.5]):
        with pytest.raises(ValueError, match="'periodic_columns' must hold distinct"):
            TableNet(3, 8, 1, periodic_columns=columns)
    with pytest.raises(ValueError, match="'graph_dropout' must lie in"):
        TableNet(3, 8, 1, graph_dropout=1.5)
    with pytest.raises(ValueError, match="'num_blocks' must be at least 0"):
        TableNet(3, 8, 1, num_blocks=-1)


@pytest.mark.parametrize(
    ('similarity', 'scale'),
    [('distance', 1), (DistanceSimilarity(4), 1), ('cosine', 10)],
)
def test_first_scale(similarity, scale):
    net = TableNet(3, 8, 1, num_frequencies=0, similarity=similarity)
    assert net.neighbours.sampler.factor.item() == pytest.approx(scale)


@pytest.mark.parametrize('similarity', ['distance', 'linear'])
def test_distances_under_autocast(similarity):
    net = TableNet(3, 8, 1, num_frequencies=0, similarity=similarity)
    x = torch.randn(20, 3)
    expected = net.eval().index(x).distance_to_sources(x)
    with torch.autocast('cpu', torch.bfloat16):
        distance = net.distance_to_sources(x)
    torch.testing.assert_close(distance, expected, atol=0.2, rtol=0.01)


def test_numbers_of_a_batch_are_labels():
    net, (x, y) = make(), draw_rows()
    ids = torch.arange(len(x)) * 3 // len(x)
    expected = net(x, y, batch=ids)
    torch.testing.assert_close(net(x, y, batch=ids * 10**12), expected)
