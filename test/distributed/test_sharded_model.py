"""Layers and models on several ranks give what they give in one process."""

import pytest
import torch
from ranks import blocks, group_of_one, run_ranks
from sharded import (
    IN,
    KINDS,
    OUT,
    N,
    arguments,
    make,
    num_nodes,
    numbers,
    results,
)
from torch.testing import assert_close

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.diagnostics import UniformSamplingWarning
from torch_geometric_gsl.distributed import RowShard, ShardedModel


@pytest.fixture(autouse=True)
def _no_warning(monkeypatch):
    monkeypatch.setattr(UniformSamplingWarning, '_issued', True)


def own(rank, name, sizes):
    shard = RowShard(sizes[rank])
    return results(name, slice(*shard.rows), shard)


def assert_equal(name, world_size, kind, folder):
    sizes = blocks(num_nodes(name), world_size, kind)
    parts = run_ranks(own, world_size, folder, name, sizes)
    expected = results(name, slice(0, num_nodes(name)))
    for part in parts:
        assert not isinstance(part, str), part
        assert part['bounds'] is expected['bounds']
        assert part['bounds'] or 'sharp' not in name
        for key, value in expected.items():
            if key.startswith(('loss', 'gradient', 'next', 'score', 'summary')):
                assert_close(part[key], value, msg=lambda text, k=key: f'{k}: {text}')
    for key in {'out', 'predict'} & expected.keys():
        for i, value in enumerate(expected[key]):
            rows = [part[key][i] for part in parts]
            if value is not None:
                assert_close(torch.cat(rows), value)
    for key in ('graph True', 'graph False'):
        for i, graph in enumerate(expected[key]):
            edges = torch.cat([part[key][i].edge_index for part in parts], dim=1)
            assert torch.equal(edges, graph.edge_index)
            weight = torch.cat([part[key][i].edge_weight for part in parts])
            assert_close(weight, graph.edge_weight)


@pytest.mark.parametrize('name', KINDS)
def test_two_ranks(name, tmp_path):
    assert_equal(name, 2, 'uneven', tmp_path)


@pytest.mark.parametrize('name', KINDS)
def test_three_ranks_of_which_one_has_no_rows(name, tmp_path):
    assert_equal(name, 3, 'empty', tmp_path)


@pytest.mark.parametrize('name', KINDS)
def test_a_group_of_one(name, tmp_path):
    rows = slice(0, num_nodes(name))
    expected = results(name, rows)
    with group_of_one(tmp_path):
        found = results(name, rows, RowShard(num_nodes(name)))
    # Features that are given have zeros as gradients, where they have none without.
    expected['out'] = [x for x in expected['out'] if x is not None]
    found['out'] = found['out'][: len(expected['out']) - 1] + found['out'][-1:]
    for key, value in expected.items():
        assert_close(found[key], value, msg=lambda text, k=key: f'{k}: {text}')


def test_all_that_was_gathered_takes_part_in_the_backward_pass(tmp_path):
    # A rank that did not would keep the others waiting.
    x, given = arguments('uniform', slice(0, N))
    with group_of_one(tmp_path):
        ShardedModel(make('uniform'), RowShard(N))(x, **given).sum().backward()
    assert torch.equal(given['z'].grad, torch.zeros(N, 3).double())


def test_sparse_features(tmp_path):
    x = numbers(0, 12, IN)
    module = GSLNet(IN, 8, 2, OUT).double().eval()
    with group_of_one(tmp_path):
        out = ShardedModel(module, RowShard(12))(x.to_sparse_csr())
    assert_close(out, module(x))


def test_one_process_without_a_group():
    rows = slice(0, N)
    found, expected = results('net', rows, RowShard(N)), results('net', rows)
    assert_close(found['loss 1'], expected['loss 1'])
    key = 'gradient convs.0.lin.weight'
    assert_close(found[key], expected[key])


def indexed(rank, sizes):
    shard = RowShard(sizes[rank])
    model, calls = make('net, relations').eval().index(numbers(0, 30, IN)), []
    first = model.convs[0]
    first.register_forward_pre_hook(lambda _, args: calls.append(len(args[0]) == 30))
    sharded = ShardedModel(model, shard)
    with torch.no_grad():
        out = [sharded(numbers(1, N, IN)[slice(*shard.rows)]) for _ in range(2)]
    return out[1], calls


def test_rows_of_an_index_are_the_sources_of_all_ranks(tmp_path):
    model = make('net, relations').eval().index(numbers(0, 30, IN))
    parts = run_ranks(indexed, 2, tmp_path, blocks(N, 2))
    assert all(calls == [True, False, False] for _, calls in parts)
    with torch.no_grad():
        expected = model(numbers(1, N, IN))
    assert_close(torch.cat([out for out, _ in parts]), expected)
