import os
from fractions import Fraction

import numpy as np
import pytest
import torch
from ranks import blocks, group_of_one, run_ranks
from sharded import IN, OUT, N, labels, numbers

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.distributed import (
    RowShard,
    load_checkpoint,
    save_checkpoint,
)


def train(path, start, end, sizes=None, rank=0):
    """Train from a step to another, from the file and into it."""
    shard = RowShard(N if sizes is None else sizes[rank])
    rows = slice(*shard.rows)
    torch.manual_seed(start)  # What was random before is read from the file.
    model = GSLNet(IN, 8, 2, OUT, k=3).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    generator = torch.Generator().manual_seed(start)
    state = {'generator': generator, 'scheduler': scheduler}
    done = load_checkpoint(path, model, optimizer, missing_ok=start == 0, **state)
    assert done == start
    x = numbers(0, N, IN)[rows]
    for _ in range(start, end):
        optimizer.zero_grad()
        options = {'generator': generator, 'shard': shard}
        model.loss(x, *labels('net', rows), **options).backward()
        shard.sum_gradients(model)
        optimizer.step()
        scheduler.step()
    save_checkpoint(path, model, optimizer, end, **state)
    return [p.detach() for p in model.parameters()]


def train_on_ranks(rank, path, start, end, sizes):
    return train(path, start, end, sizes, rank)


def test_other_numbers_of_ranks_go_on(tmp_path):
    expected = train(tmp_path / 'straight.pt', 0, 6)
    path = tmp_path / 'last.pt'
    for i, (start, world_size) in enumerate([(0, 2), (2, 3)]):
        folder = tmp_path / str(i)
        folder.mkdir()
        args = path, start, start + 2, blocks(N, world_size)
        ranks = run_ranks(train_on_ranks, world_size, folder, *args)
        for parameters in ranks[1:]:
            torch.testing.assert_close(parameters, ranks[0], rtol=0, atol=0)
    torch.testing.assert_close(train(path, 4, 6), expected)
    assert sorted(file.name for file in tmp_path.glob('*.pt')) == [
        'last.pt',
        'straight.pt',
    ]


def killed(rank, path):
    model = torch.nn.Linear(2, 3)
    save_checkpoint(path, model, step=1)
    write = torch.save

    def write_half(content, file):
        write(content, file)
        if rank == 0:
            os.truncate(file, 100)
            os._exit(1)

    torch.save = write_half
    save_checkpoint(path, model, step=2)


def test_a_killed_save_leaves_the_former_file(tmp_path):
    path = tmp_path / 'last.pt'
    killed_rank, survivor = run_ranks(killed, 2, tmp_path, path)
    assert killed_rank is None
    assert survivor.startswith(('RuntimeError', 'DistBackendError'))
    assert load_checkpoint(path, torch.nn.Linear(2, 3)) == 1


def test_without_a_file(tmp_path):
    model = torch.nn.Linear(2, 3)
    before = model.weight.clone()
    state = torch.get_rng_state()
    path = tmp_path / 'none.pt'
    assert load_checkpoint(path, model, missing_ok=True) == 0
    assert torch.equal(model.weight, before)
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(FileNotFoundError, match=r'none\.pt'):
        load_checkpoint(path, model)


def test_bad_input(tmp_path):
    path, model = tmp_path / 'last.pt', torch.nn.Linear(2, 3)
    with pytest.raises(ValueError, match=r"'step' must be at least 0 \(got -1\)"):
        save_checkpoint(path, model, step=-1)
    with pytest.raises(TypeError, match="'other' must have a method 'state_dict'"):
        save_checkpoint(path, model, other=3)
    assert not path.exists()
    save_checkpoint(path, model)
    with pytest.raises(TypeError, match="'missing_ok' must be a bool"):
        load_checkpoint(path, model, missing_ok='no')


def holds(name, value):
    return lambda content: content | {name: value}


def without_groups(content):
    content['state']['parts']['optimizer'] = {'state': {}, 'param_groups': []}
    return content


#: What is changed in the file, what is loaded from it, and what is said of it.
OTHERS = {
    'a size': (None, {'model': torch.nn.Linear(2, 4)}, 'size mismatch'),
    'no scheduler': (None, {'scheduler': 'StepLR'}, "'scheduler'"),
    'no generator': (None, {'generator': torch.Generator()}, "'generator'"),
    'a part of an optimizer': (without_groups, {'optimizer': 'SGD'}, ''),
    **{f'{n} of a list': (holds(n, [1]), {}, '') for n in ('state', 'options')},
    **{f'no {n}': (holds(n, {}), {}, '') for n in ('state', 'options')},
}


@pytest.mark.parametrize('case', OTHERS)
def test_the_state_of_other_objects_loads_nothing(case, tmp_path):
    path, model = tmp_path / 'last.pt', torch.nn.Linear(2, 3)
    save_checkpoint(path, model, torch.optim.SGD(model.parameters(), momentum=0.9))
    change, options, text = OTHERS[case]
    if change is not None:
        torch.save(change(torch.load(path, weights_only=True)), path)
    torch.nn.init.ones_(model.weight)
    options = {'model': model, **options}
    if optimizer := options.get('optimizer'):
        options['optimizer'] = getattr(torch.optim, optimizer)(model.parameters())
    if 'scheduler' in options:
        optimizer = torch.optim.SGD(model.parameters())
        options['scheduler'] = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match=f'cannot be restored: (.|\n)*{text}'):
        load_checkpoint(path, **options)
    assert bool((model.weight == 1).all())
    assert torch.equal(torch.get_rng_state(), state)


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    path, model = tmp_path / 'last.pt', torch.nn.Linear(2, 3)
    save_checkpoint(path, model, step=np.int64(5))
    optimizer = torch.optim.SGD(model.parameters(), lr=Fraction(1, 10))
    for wrong, args in ((model, (optimizer,)), (GSLNet(-1, 8, 2, 3), ())):
        with pytest.raises(ValueError, match=r'is unchanged.*\(it refers to '):
            save_checkpoint(path, wrong, *args, step=6)
    assert load_checkpoint(path, model) == 5
    assert [file.name for file in tmp_path.iterdir()] == ['last.pt']


def save_into(rank, path):
    save_checkpoint(path, torch.nn.Linear(2, 3))


def test_an_error_of_the_first_rank_ends_all(tmp_path):
    writer, waiting = run_ranks(save_into, 2, tmp_path, tmp_path / 'none' / 'last.pt')
    assert writer.startswith('FileNotFoundError')
    assert waiting.startswith(('RuntimeError', 'DistBackendError'))


def test_a_group_of_one(tmp_path):
    path, model = tmp_path / 'last.pt', torch.nn.Linear(2, 3)
    with group_of_one(tmp_path):
        save_checkpoint(path, model, step=3)
        assert load_checkpoint(path, model) == 3
        with pytest.raises(FileNotFoundError):
            save_checkpoint(tmp_path / 'none' / 'last.pt', model)


def write_and_read(rank, path):
    """Keep a model in a group that lacks the first process."""
    group = torch.distributed.new_group([1, 2])
    if rank == 0:
        return None
    model = torch.nn.Linear(2, 3)
    torch.nn.init.constant_(model.weight, rank)
    save_checkpoint(path, model, step=4, group=group)
    return load_checkpoint(path, model, group=group), model.weight.detach()


def test_a_group_of_some_ranks(tmp_path):
    none, *members = run_ranks(write_and_read, 3, tmp_path, tmp_path / 'last.ckpt')
    assert none is None
    for step, weight in members:
        assert step == 4
        assert torch.equal(weight, torch.ones(3, 2))
