"""Attacked graphs: their files, the networks, what is attacked, and the tables."""

import json
import re

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional as F

from reproduction import adaptive, attacked, attacked_data, attacked_tables
from reproduction.attacked_data import AttackedGraph, Split
from reproduction.attacked_models import (
    SETTING,
    Prediction,
    gcn,
    half_and_half,
    low_rank,
    mean,
    mix,
    mixture_weights,
)
from reproduction.attacked_tables import ALL, ROWS
from torch_geometric_gsl.transforms.feature_graphs import nearest_neighbours
from torch_geometric_gsl.typing import SampledGraph

SMALL = SETTING | {'epochs': 5, 'hidden_channels': 8, 'k': 3, 'ranks': [10]}
ADAPTIVE = adaptive.ADAPTIVE_SETTING | SMALL
ADAPTIVE |= {'block_size': 300, 'attack_epochs': 4, 'resampling': 2}
SPLIT = Split(*torch.arange(48).split([12, 12, 24]))


@pytest.fixture
def graph(data):
    """Three classes, and an edge between the next two nodes of each."""
    source = torch.arange(48).repeat(2)
    target = torch.cat([torch.arange(48).roll(-3), torch.arange(48).roll(-1)])
    both = torch.cat([torch.stack([source, target]), torch.stack([target, source])], 1)
    x = F.normalize(data.x).to_sparse_csr()
    edges = both[:, torch.argsort(both[1] * 48 + both[0])]
    return AttackedGraph(x, x, data.y, nearest_neighbours(x, 3), edges)


@pytest.fixture
def loaded(graph, monkeypatch):
    for module in (attacked, adaptive):
        monkeypatch.setattr(module, 'load', lambda *args: graph)
        monkeypatch.setattr(module, 'split_of', lambda *args: SPLIT)
    return graph


RUN = attacked.Run('CiteSeer', 5, 'attacked', 0)


def test_a_run_has_all_rows_and_is_the_same_again(loaded):
    name, result = attacked.execute(RUN, SMALL)
    assert name == f'CiteSeer/5/attacked/{ALL}/0'
    for _, network in ROWS.values():
        assert attacked_tables._networks(network, result['rows']), network
    assert sum(result['weights'].values()) == pytest.approx(1, abs=1e-3)
    assert json.dumps(attacked.execute(RUN, SMALL)[1]) == json.dumps(result)


def test_labels_of_test_nodes_are_read_for_the_score_alone(loaded, monkeypatch):
    result = attacked.execute(RUN, SMALL)[1]
    y = loaded.y.clone()
    y[SPLIT.test] = y[SPLIT.test].roll(1)
    monkeypatch.setattr(attacked, 'load', lambda *args: loaded._replace(y=y))
    changed = attacked.execute(RUN, SMALL)[1]
    assert changed['weights'] == result['weights']
    for name, row in result['rows'].items():
        assert changed['rows'][name]['val'] == row['val']
        np.testing.assert_equal(changed['rows'][name]['loss'], row['loss'])
    assert changed['rows'] != result['rows']  # The scores themselves differ.


def test_mixture_weights_are_the_most_likely(graph):
    generator = torch.Generator().manual_seed(0)
    probabilities = [
        torch.rand(48, 3, generator=generator).softmax(1) for _ in range(2)
    ]
    probabilities[0] = probabilities[0] + 0.5 * F.one_hot(graph.y, 3)
    probabilities[0] /= probabilities[0].sum(1, keepdim=True)
    probabilities[1][::2] = probabilities[0][::2].flip(1)
    weight = mixture_weights(probabilities, graph.y, SPLIT.val)[0]

    def likelihood(w):
        mixed = w * probabilities[0] + (1 - w) * probabilities[1]
        return float(mixed[SPLIT.val, graph.y[SPLIT.val]].log().sum())

    best = max(np.linspace(0, 1, 1001), key=likelihood)
    assert float(weight) == pytest.approx(best, abs=0.002)


def test_mixture_of_equal_networks_is_their_prediction(graph):
    prediction = Prediction(torch.rand(48, 3).softmax(1), 0.5, 1.0, {})
    mixture, weight = mix([prediction, prediction], graph.y, SPLIT)
    torch.testing.assert_close(mixture.prob, prediction.prob)
    assert weight.tolist() == [0.5, 0.5]


def test_sums_are_those_of_matrices(graph):
    weighted = SampledGraph(graph.edge_index, torch.rand(graph.edge_index.size(1)))
    h = torch.randn(48, 4)

    def matrix(graph):
        dense = torch.zeros(48, 48)
        dense[graph.edge_index[1], graph.edge_index[0]] = graph.edge_weight
        return dense / dense.sum(1, keepdim=True).clamp(min=1e-9)

    torch.testing.assert_close(mean(weighted, 48)(h), matrix(weighted) @ h)
    both = (matrix(weighted) @ h + matrix(graph.nearest) @ h) / 2
    torch.testing.assert_close(half_and_half(weighted, graph.nearest, 48)(h), both)


def test_low_rank_keeps_the_largest_eigenvalues():
    generator = torch.Generator().manual_seed(0)
    upper = (torch.rand(30, 30, generator=generator) < 0.2).triu(1)
    edge_index = (upper | upper.T).nonzero().T
    graph = SampledGraph(edge_index, torch.ones(edge_index.size(1)))
    matrix = gcn(graph, 30)(torch.eye(30))
    values, vectors = torch.linalg.eigh(matrix.double())
    keep = values.abs().argsort(descending=True)[:9]
    expected = vectors[:, keep] * values[keep] @ vectors[:, keep].T
    product = low_rank(graph, 30, 9)(torch.eye(30))
    torch.testing.assert_close(product, expected.float(), atol=1e-5, rtol=0)


def test_what_is_attacked_is_what_was_trained(graph):
    nets = adaptive.Nets(attacked.Trainer(graph, SPLIT, 0, ADAPTIVE))
    edges = SampledGraph(graph.edge_index, torch.ones(graph.edge_index.size(1)))
    for name in adaptive.ADAPTIVE_ROWS:
        out = nets.run(name, graph.x, edges)
        expected = nets.predictions[name].prob
        torch.testing.assert_close(out.softmax(1), expected, atol=1e-4, rtol=0)
        if name != 'refined':  # Its edges have any weights.
            smooth = nets.run(name, graph.x, edges, is_smooth=True)
            torch.testing.assert_close(smooth, out)


def test_gradient_of_the_refined_network_is_that_of_differences(graph):
    nets = adaptive.Nets(attacked.Trainer(graph, SPLIT, 0, ADAPTIVE))
    weight = torch.ones(graph.edge_index.size(1)).requires_grad_()

    def loss(weight):
        out = nets.run('refined', graph.x, SampledGraph(graph.edge_index, weight), True)
        return F.cross_entropy(out, graph.y)

    (gradient,) = torch.autograd.grad(loss(weight), weight)
    direction = gradient.sign()
    step = 1e-2 * direction
    difference = (loss(weight + step) - loss(weight - step)).detach() / 2e-2
    assert float(difference) == pytest.approx(float(gradient.abs().sum()), rel=0.05)


def test_an_attack_keeps_its_budget_and_harms(loaded):
    setting = ADAPTIVE | {'lr': 0.1, 'epochs': 20, 'attack_epochs': 5}
    name, result = adaptive.execute(adaptive.Run('CiteSeer', 25, 0), setting)
    assert name == f'CiteSeer/25/{ALL}/0'
    assert result['rows'].keys() == {*adaptive.ADAPTIVE_ROWS}
    rows = result['rows']
    assert rows['gcn']['test'] <= rows['gcn']['own'] < rows['gcn']['clean']
    assert rows['mlp, taught']['test'] == rows['mlp, taught']['clean']
    trainer = attacked.Trainer(loaded, SPLIT, 0, setting)
    victim = adaptive.Victim(adaptive.Nets(trainer), 'gcn')
    edges = adaptive.attack(victim, 7, setting)
    before, after = ({*map(tuple, e.T.tolist())} for e in (loaded.edge_index, edges))
    assert 0 < len(before ^ after) <= 14


@pytest.mark.parametrize(
    ('dataset', 'nodes', 'edges'),
    [('CiteSeer', 2110, 3668), ('Cora-ML', 2810, 7981), ('Polblogs', 1222, 16714)],
)
def test_real_files(dataset, nodes, edges, gsl_data, monkeypatch):
    monkeypatch.setenv('GSL_DATA', str(gsl_data('attacked').parent))
    clean, changed = (attacked_data.load(dataset, rate, 2) for rate in (0, 25))
    assert len(clean.y) == nodes
    assert clean.edge_index.size(1) == 2 * edges
    differ = {*map(tuple, clean.edge_index.T.tolist())}
    differ ^= {*map(tuple, changed.edge_index.T.tolist())}
    assert 0.9 < len(differ) / 2 / (0.25 * edges) <= 1
    split = attacked_data.split_of(dataset, 'attacked', nodes, 0)
    members = torch.cat(split).tolist()  # The split of CiteSeer leaves one node out.
    assert nodes - 1 <= len(members) == len({*members})
    assert max(members) < nodes
    assert 0 <= float(clean.jaccard.min()) <= float(clean.jaccard.max()) <= 1


def test_random_splits_have_no_node_twice():
    splits = attacked_data.split_of('CiteSeer', 'random', 105, 3)
    assert [len(rows) for rows in splits] == [10, 10, 85]
    assert sorted(torch.cat(splits).tolist()) == [*range(105)]
    again = attacked_data.split_of('CiteSeer', 'random', 105, 4)
    assert not torch.equal(again.train, splits.train)


@pytest.mark.parametrize('content', [b'', b'PK\x03\x04 cut'])
def test_damaged_files_are_told(content, tmp_path, monkeypatch):
    monkeypatch.setenv('GSL_DATA', str(tmp_path))
    attacked_data._load_clean.cache_clear()
    with pytest.raises(OSError, match=r"citeseer.npz' was not found: let 'GSL_DATA'"):
        attacked_data.load('CiteSeer', 0, 2)
    path = tmp_path / 'attacked' / 'citeseer.npz'
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(OSError, match=re.escape(f"'{path}' is damaged")):
        attacked_data.load('CiteSeer', 0, 2)


def test_objects_in_files_are_not_unpickled(tmp_path, monkeypatch):
    monkeypatch.setenv('GSL_DATA', str(tmp_path))
    attacked_data._load_clean.cache_clear()
    path = tmp_path / 'attacked' / 'citeseer.npz'
    path.parent.mkdir()
    identity = sp.csr_matrix(np.eye(3))
    arrays = {'adj_data': identity.data, 'adj_indices': identity.indices}
    labels = np.array([0, 1, None], dtype=object)
    np.savez(
        path,
        **arrays,
        adj_indptr=identity.indptr,
        adj_shape=identity.shape,
        labels=labels,
    )
    with pytest.raises(OSError, match=r'damaged: .*allow_pickle=False'):
        attacked_data.load('CiteSeer', 0, 2)
