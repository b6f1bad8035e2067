r"""The table net against its definition, and the law that no row hears its label."""

import copy
import math

import pytest
import torch
from oracles import seeded
from table_nets import HIDDEN, IN, draw_rows, make
from torch.nn import functional as F

from torch_geometric_gsl import DistanceSimilarity
from torch_geometric_gsl.nn.embeddings import ColumnEncoder
from torch_geometric_gsl.nn.models.table_net import TableNet
from torch_geometric_gsl.nn.models.table_parts import TableNeighbours
from torch_geometric_gsl.ops import cells, search
from torch_geometric_gsl.ops.aggregate import weighted_sum
from torch_geometric_gsl.ops.scores import Negative

N = 30


def after_the_sum(net, h):
    for block in net.blocks:
        h = h + block.lin2(F.mish(block.lin1(block.norm(h))))
    return net.head(net.head_norm(h).relu())


def definition(net, x_src, x_dst, y, own):
    """The output over all neighbours, a target after the other."""
    outputs = []
    h_src, h_dst = net.encoder(x_src), net.encoder(x_dst)
    z_src, z_dst = (net.lin_key(net.norm(h)) for h in (h_src, h_dst))
    message = net.lin_value(h_src) + net.label(y)
    scale = net.neighbours.sampler.log_scale.exp()
    for i in range(len(x_dst)):
        others = [j for j in range(len(x_src)) if not (own and j == i)]
        distance = torch.stack([(z_dst[i] - z_src[j]).square().sum() for j in others])
        weight = (-scale * distance).exp()
        h = h_dst[i] + (weight / weight.sum()) @ message[others]
        outputs.append(after_the_sum(net, h))
    return torch.stack(outputs)


@pytest.mark.parametrize('own', [True, False])
def test_clusters_find_the_same_neighbours(own, monkeypatch):
    net, (x, y) = make(eval_k=7).eval(), draw_rows(300)
    rows = x if own else (x, x[:200] + 0.1)
    expected = net(rows, y)
    monkeypatch.setattr(search, '_BOUNDED', 0)
    monkeypatch.setattr(search, '_without_bounds', None)  # It compares all pairs.
    monkeypatch.setattr(cells, '_MIN_ROWS', 1)
    torch.testing.assert_close(net(rows, y), expected)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('own', [True, False])
def test_equals_the_definition(training, own):
    net = make(eval_k=10**6).train(training)
    (x, y), (new, _) = draw_rows(), draw_rows(6, seed=5)
    given = x if own else (x, new)
    expected = definition(net, x, x if own else new, y, own)
    torch.testing.assert_close(net(given, y), expected)
    leaves = [p for p in net.parameters() if p.requires_grad]
    found = torch.autograd.grad(net(given, y).sum(), leaves)
    expected = torch.autograd.grad(expected.sum(), leaves)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('draws', [None, 3])
@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('is_class', [True, False])
def test_no_row_hears_its_own_label(draws, training, is_class):
    channels = 3 if is_class else 1
    net = make(channels, draws=draws, dropout=0.3, graph_dropout=0.3).train(training)
    x, y = draw_rows()
    y = torch.randint(3, (N,), generator=seeded(4)) if is_class else y
    out = net(x, y, generator=seeded(9))
    for i in range(N):
        other = y.clone()
        other[i] = (y[i] + 1) % 3 if is_class else y[i] + 100
        moved = (net(x, other, generator=seeded(9)) != out).any(dim=1)
        assert not bool(moved[i])
        assert bool(moved.any())


@pytest.mark.parametrize('draws', [None, 3])
@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('own', [True, False])
def test_the_graph_is_the_one_that_was_summed(draws, training, own):
    net = make(draws=draws, eval_k=7, graph_dropout=0.2).train(training)
    (x, y), (new, _) = draw_rows(), draw_rows(6, seed=5)
    given, dst = (x, x) if own else ((x, new), new)
    out, graph = net(given, y, generator=seeded(9), return_graph=True)
    source, target = graph.edge_index
    assert not own or bool((source != target).all())
    h_src, h_dst = net.encoder(x), net.encoder(dst)
    message = net.lin_value(h_src) + net.label(y)
    h = h_dst + weighted_sum(message, *graph, num_targets=len(dst))
    torch.testing.assert_close(out, after_the_sum(net, h))
    if not training:
        assert torch.equal(torch.bincount(target), torch.full((len(dst),), 7))
        z = net.lin_key(net.norm(h_src)), net.lin_key(net.norm(h_dst))
        distance = torch.cdist(z[1], z[0])
        if own:
            distance.fill_diagonal_(torch.inf)
        near = distance.topk(7, largest=False).indices.sort(dim=1).values
        assert torch.equal(source.view(-1, 7), near)
        torch.testing.assert_close(
            net(given, y), net(given, y, return_graph=True)[0], rtol=0, atol=0
        )


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
    other = make().eval()
    torch.testing.assert_close(net(x, y), other(x, y))
    torch.testing.assert_close(net((x, new)), other((x, new)))
    # It is part of the state; one without an index drops it.
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(new), net(new))
    other.load_state_dict(make().state_dict())
    assert other.index_key is None
    net.clear_index()
    assert not torch.allclose(net(new), expected)
    net.index(x, y).reset_parameters()
    assert net.index_key is None


def test_saved_and_loaded(tmp_path):
    net, (x, y), (new, _) = make(draws=2).eval(), draw_rows(), draw_rows(6, seed=5)
    net.float().index(x.float(), y.float()).save(tmp_path / 'net.pt')
    again = TableNet.load(tmp_path / 'net.pt')
    assert again.neighbours.draws == 2
    assert torch.equal(again(new.float()), net(new.float()))


def test_unknown_labels():
    net, (x, y) = make(), draw_rows()
    unknown = torch.full_like(y, math.nan)
    torch.testing.assert_close(net(x, unknown), net(x))
    with pytest.raises(ValueError, match=r'one label for each of the 30 sources'):
        net(x, y[:5])
    for wrong in (y[:5], torch.cat([y, y])):
        with pytest.raises(ValueError, match=r"'y' must have 30 labels, one per row"):
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
    found, graph = net(pair, y[:0], return_graph=True)
    assert graph.edge_index.shape == (2, 0)
    torch.testing.assert_close(found, out)


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
    neighbours = TableNeighbours(3, similarity, dropout=0.0, eval_k=k).double()
    score = similarity(z).fill_diagonal_(-torch.inf)
    if not training and k < 20:
        least = score.topk(k, dim=1).values[:, -1:]
        score = score.masked_fill(score < least, -torch.inf)
    found, _ = neighbours.train(training)(z, torch.eye(20).double())
    torch.testing.assert_close(found, score.softmax(dim=1))


def test_columns_that_are_embedded():
    pytest.importorskip('rtdl_num_embeddings')
    encoder = ColumnEncoder(3, 4, num_frequencies=2, periodic_columns=[2, 0])
    x = torch.randn(5, 3)
    frequencies = encoder.periodic.periodic.weight
    linear = encoder.periodic.linear
    parts = [x]
    for i, column in enumerate([2, 0]):
        angle = 2 * math.pi * frequencies[i] * x[:, column : column + 1]
        wave = torch.cat([angle.cos(), angle.sin()], dim=1)
        parts.append(wave @ linear.weight[i] + linear.bias[i])
    expected = torch.cat(parts, dim=1) @ encoder.lin.weight.t() + encoder.lin.bias
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


def test_the_index_moves_with_the_model():
    net, (x, y), (new, _) = make().eval(), draw_rows(), draw_rows(6, seed=5)
    expected = net.index(x, y)(new)
    torch.testing.assert_close(
        net.float()(new.float()).double(), expected, atol=1e-4, rtol=1e-4
    )
    assert torch.equal(copy.deepcopy(net)(new.float()), net(new.float()))


def test_no_new_rows():
    x, y, net = torch.randn(50, 4), torch.randn(50, 2), TableNet(4, 8, 2).eval()
    assert net((x, x[:0]), y).shape == (0, 2)
