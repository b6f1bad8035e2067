"""Layers and models on several ranks, and what these send."""

from functools import cache, partial

import pytest
import torch
import torch.distributed as dist
from ranks import blocks, group_of_one, run_ranks
from sharded import (
    IN,
    KINDS,
    MANY,
    OUT,
    N,
    arguments,
    labels,
    make,
    num_nodes,
    numbers,
    results,
)
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

from torch_geometric_gsl import GSLNet, LatentGraphConv, TransitionGraphConv
from torch_geometric_gsl.diagnostics import UniformSamplingWarning
from torch_geometric_gsl.distributed import RowShard

ZEROS = torch.zeros(12, dtype=torch.long)


@pytest.fixture(autouse=True, scope='module')
def _no_warning():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UniformSamplingWarning, '_issued', True)
        yield


@cache
def on_one_process(name):
    return results(name, slice(0, num_nodes(name)))


def sizes_of(name, world_size):
    split = 'uneven' if world_size == 2 else 'empty'
    return blocks(num_nodes(name), world_size, split)


def on_rank(rank, world_size):
    outputs = {}
    for name in KINDS:
        shard = RowShard(sizes_of(name, world_size)[rank])
        outputs[name] = results(name, slice(*shard.rows), shard)
    return outputs


@pytest.fixture(
    scope='module',
    params=[pytest.param(2, marks=pytest.mark.slow), 3],
    ids='{} ranks'.format,
)
def ranks(request, _no_warning, tmp_path_factory):
    """What each rank finds; of three the first has no rows."""
    outputs = run_ranks(
        on_rank, request.param, tmp_path_factory.mktemp('x'), request.param
    )
    assert not any(isinstance(output, str) for output in outputs), outputs
    return outputs


@pytest.mark.parametrize('name', KINDS)
def test_ranks_give_what_one_process_gives(name, ranks):
    outputs, expected = [output[name] for output in ranks], on_one_process(name)
    for output in outputs:
        assert output['bounds'] is expected['bounds']
        assert output['bounds'] or 'sharp' not in name
        for key, value in expected.items():
            if key.startswith(('loss', 'gradient', 'next', 'score', 'summary')):
                assert_close(output[key], value, msg=lambda text, k=key: f'{k}: {text}')
    for key in {'out', 'predict'} & expected.keys():
        for i, value in enumerate(expected[key]):
            rows = [output[key][i] for output in outputs]
            if value is not None:
                assert_close(torch.cat(rows), value)
    for key in ('graph True', 'graph False'):
        for i, graph in enumerate(expected[key]):
            edges = torch.cat([output[key][i].edge_index for output in outputs], dim=1)
            assert torch.equal(edges, graph.edge_index)
            weight = torch.cat([output[key][i].edge_weight for output in outputs])
            assert_close(weight, graph.edge_weight)


@pytest.mark.parametrize('name', KINDS)
def test_a_group_of_one(name, tmp_path):
    with group_of_one(tmp_path):
        rows = slice(0, num_nodes(name))
        outputs = results(name, rows, RowShard(num_nodes(name)))
    # Features that are given have zeros as gradients, where they have none without.
    out = [x for x in on_one_process(name)['out'] if x is not None]
    outputs['out'] = outputs['out'][: len(out) - 1] + outputs['out'][-1:]
    for key, value in (on_one_process(name) | {'out': out}).items():
        assert_close(outputs[key], value, msg=lambda text, k=key: f'{k}: {text}')


def test_all_that_was_gathered_takes_part_in_the_backward_pass(tmp_path):
    # A rank that did not would keep the others waiting.
    x, kwargs = arguments('uniform', slice(0, N))
    with group_of_one(tmp_path):
        make('uniform')(x, **kwargs, shard=RowShard(N)).sum().backward()
    assert torch.equal(kwargs['z'].grad, torch.zeros(N, 3).double())


def test_sparse_features(tmp_path):
    x = numbers(0, 12, IN)
    module = GSLNet(IN, 8, 2, OUT, z_channels=None).double().eval()
    with group_of_one(tmp_path):
        out = module(x.to_sparse_csr(), shard=RowShard(12))
    assert_close(out, module(x))


def indexed(rank, sizes):
    shard = RowShard(sizes[rank])
    model, calls = make('net').eval().index(numbers(0, 30, IN)), []
    layer = model.convs[0]
    layer.register_forward_pre_hook(lambda _, args: calls.append(len(args[0]) == 30))
    x = numbers(1, N, IN)[slice(*shard.rows)]
    with torch.no_grad():
        out = [model(x, shard=shard) for _ in range(2)]
    return out[1], calls


def test_rows_of_an_index_are_the_sources_of_all_ranks(tmp_path):
    model = make('net').eval().index(numbers(0, 30, IN))
    outputs = run_ranks(indexed, 2, tmp_path, blocks(N, 2))
    # Their hidden rows are in the index.
    assert all(calls == [False, False] for _, calls in outputs)
    with torch.no_grad():
        expected = model(numbers(1, N, IN))
    assert_close(torch.cat([out for out, _ in outputs]), expected)


CONV, NET = LatentGraphConv(IN, OUT), GSLNet(IN, 8, 2, OUT)
NO_MEANING = "ValueError: '{}' is not supported with '{}' (got a {})"
TWO_ROWS = "ValueError: 'x' must have the 12 rows of this rank (got 2)"
X = numbers(0, 12, IN).float()
#: The model, its arguments, and the error.
BAD = {
    'readout': (GSLNet(IN, 8, 2, OUT, readout='sum'), (X,),
                NO_MEANING.format('readout', 'shard', 'SumAggregation')),
    'rows': (CONV, (X[:2],), TWO_ROWS),
    'targets of a pair': (NET, ((X, X[:2]),), TWO_ROWS),
    'batch': (CONV, (X, None, None, ZEROS),
              NO_MEANING.format('batch', 'rows', 'Tensor')),
    'candidates': (CONV, (X, ZEROS.view(2, 6)),
                   NO_MEANING.format('edge_index', 'rows', 'Tensor')),
    'nodes': (TransitionGraphConv(IN, OUT, 13, 4), (X,),
              "ValueError: 'shard' must have num_nodes=13 rows on all ranks together "
              '(got 12)'),
    'sparse': (LatentGraphConv(IN, OUT, z_channels=-1), (X.to_sparse_csr(),),
               "ValueError: 'x' must be dense to be sent to other ranks "
               '(got torch.sparse_csr)'),
}  # fmt: skip


@pytest.mark.parametrize(('model', 'args', 'text'), BAD.values(), ids=BAD)
def test_bad_input(model, args, text, tmp_path):
    with group_of_one(tmp_path), pytest.raises((TypeError, ValueError)) as info:
        model(*args, shard=RowShard(12))
    assert f'{info.typename}: {info.value}' == text


@pytest.mark.parametrize('model', [CONV, NET, TransitionGraphConv(IN, OUT, 12, 4)])
def test_what_is_no_shard(model):
    with pytest.raises(TypeError, match=r"'shard' must be a RowShard \(got int\)"):
        model(X, shard=3)


def sent(name, folder, monkeypatch):
    """Return the numbers that a step gathers, scatters and sums, but short messages."""
    sizes = dict.fromkeys(('all_gather', 'all_to_all_single', 'all_reduce'), 0)

    def spy(collective, call, out, *args, **kwargs):
        numel = (args[0] if args else out).numel()
        sizes[collective] += numel if numel > 3 else 0
        return call(out, *args, **kwargs)

    for collective in sizes:
        call = getattr(dist, collective)
        monkeypatch.setattr(dist, collective, partial(spy, collective, call))
    model, rows = make(name), slice(0, num_nodes(name))
    x, kwargs = arguments(name, rows)
    with group_of_one(folder):
        kwargs['shard'] = RowShard(num_nodes(name))
        if 'net' in name:
            model.loss(x, *labels(name, rows), **kwargs).backward()
        else:
            model(x, **kwargs).sum().backward()
    monkeypatch.undo()
    return [*sizes.values()]


def test_rows_are_gathered_once(tmp_path, monkeypatch):
    expected = {
        # Two layers of 16 and 4 channels.
        'net': [N * 20, N * 20, 0],
        # And the input, once for both layers; its gradient goes back.
        'net, input': [N * (20 + IN)] * 2 + [0],
        # The transition nodes and their messages, back and forth: 9 rows of 4 numbers.
        'transition': [0, 0, 2 * 2 * 36],
        'free': [0, 0, 0],
        # Bounds of sharp scores need all rows, without the gradient.
        'transition, sharp': [MANY * 4, 0, 2 * 2 * 130 * 4],
    }
    for name, sizes in expected.items():
        folder = tmp_path / name
        folder.mkdir()
        assert sent(name, folder, monkeypatch) == sizes, name


class Loss(torch.nn.Sequential):
    """What DistributedDataParallel calls: a module that returns a loss."""

    def forward(self, *args, **kwargs):
        return self[0].loss(*args, **kwargs)


def averaged(rank, sizes):
    """The gradients of DistributedDataParallel, and those that are summed once."""
    shard, gradients = RowShard(sizes[rank]), []
    rows = slice(*shard.rows)
    args = arguments('net', rows)[0], *labels('net', rows)
    for is_ddp in (True, False):
        module = make('net')
        torch.manual_seed(6)
        model = Loss(module)
        call = DistributedDataParallel(model) if is_ddp else model
        (call(*args, shard=shard) * (shard.world_size if is_ddp else 1)).backward()
        if not is_ddp:
            shard.sum_gradients(module)
        gradients.append([p.grad.clone() for p in module.parameters()])
    return gradients


def test_distributed_data_parallel(tmp_path):
    for averages, sums in run_ranks(averaged, 2, tmp_path, blocks(N, 2)):
        assert_close(averages, sums)
