"""Configs, and the settings and runs that presets and experiments choose."""

import dataclasses

import pytest

from reproduction.experiments import (
    EXPERIMENTS,
    Choice,
    RunConfig,
    make_config,
)
from reproduction.files import write_json

DEFAULT = Choice((), (), range(5))


def test_a_file_is_known_by_its_content(tmp_path):
    path = tmp_path / 'my.csv'
    digests = []
    for text in ('x,y\n1,a\n', 'x,y\n1,bb\n', 'x,y\n1,a\n'):
        path.write_text(text)
        config = make_config(str(path), 'mlp', 0, label='y')
        assert config.label == 'y'
        digests.append(config.digest)
    assert digests[0] == digests[2] != digests[1]
    (tmp_path / 'other').mkdir()
    moved = path.rename(tmp_path / 'other' / 'my.csv')
    again = make_config(str(moved), 'mlp', 0, label='y')
    assert str(again) == str(config)
    assert again.to_dict() == config.to_dict()
    # The label is that of files: among them may stand a name.
    named = make_config('wine', 'mlp', 0, label='y')
    assert (named.label, named.digest) == (None, None)


def test_tuned(tmp_path):
    with pytest.raises(ValueError, match="no search has tuned 'mlp' on 'wine' yet"):
        make_config('wine', 'mlp', 0, 'tuned', results=tmp_path)
    found = {'setting': {'lr': 0.25, 'dropout': 0.75}, 'preset': 'quick'}
    write_json(tmp_path / 'tuned.json', {'wine': {'mlp': found}})
    config = make_config('wine', 'mlp', 0, 'tuned', results=tmp_path)
    assert (config.lr, config.options['dropout'], config.epochs) == (0.25, 0.75, 20)
    # Changes come last.
    again = make_config('wine', 'mlp', 0, 'tuned', results=tmp_path, lr=0.5, k=9)
    assert (again.lr, again.options['k']) == (0.5, 9)


def test_tuned_settings_run_where_they_were_not_selected():
    choice = Choice((), ('mlp', 'knn_gcn_root'), range(2), 'tuned')
    configs = EXPERIMENTS['table1'].configs(choice)
    # Seeds 0 to 2 selected them.
    assert {config.seed for config in configs} == {3, 4}
    assert {c.dataset for c in configs} == {'CiteSeer', 'Chameleon', '20News'}


def make(**changes):
    values = {'dataset': 'wine', 'method': 'mlp', 'seed': 3, 'options': {'k': 5}}
    return RunConfig(**(values | changes))


def test_setting_ignores_the_seed_and_nothing_else():
    assert make(seed=1).setting == make(seed=2).setting
    numbers = ('lr', 'weight_decay', 'epochs', 'eval_every', 'patience', 'revision')
    numbers += ('pretrain_epochs', 'time_limit', 'denoising_lr')
    texts = {'dataset': 'digits', 'method': 'uniform', 'label': 'kind', 'digest': '7'}
    others = {'options': {'k': 6}, 'optimizer': 'adamw'}
    changes = others | texts | dict.fromkeys(numbers, 7)
    fields = {field.name for field in dataclasses.fields(RunConfig)} - {'seed'}
    assert fields == changes.keys()
    settings = {make(**{name: value}).setting for name, value in changes.items()}
    assert len(settings | {make().setting}) == len(changes) + 1
