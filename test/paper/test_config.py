from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import pytest

from reproduction.config import RunConfig


def make(**changes: Any) -> RunConfig:
    values = {'dataset': 'wine', 'method': 'mlp', 'seed': 3, 'options': {'k': 5}}
    return RunConfig(**(values | changes))


def test_frozen() -> None:
    config = make()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 4
    with pytest.raises(TypeError, match='does not support item assignment'):
        config.options['k'] = 6


def test_options_are_copied() -> None:
    options = {'k': 5}
    config = make(options=options)
    options['k'] = 6
    assert config.options['k'] == 5


def test_round_trip() -> None:
    config = make(options={'k': 5, 'widths': (1, 2)}, lr=0.02)
    values = json.loads(json.dumps(config.to_dict()))
    again = RunConfig.from_dict(values)
    assert again.to_dict() == config.to_dict()
    assert str(again) == str(config)


def test_setting_ignores_the_seed_and_nothing_else() -> None:
    assert make(seed=1).setting == make(seed=2).setting
    changes: list[dict[str, Any]] = [
        {'dataset': 'digits'},
        {'method': 'uniform'},
        {'label': 'kind'},
        {'options': {'k': 6}},
        {'optimizer': 'adamw'},
        {'lr': 0.5},
        {'weight_decay': 0.5},
        {'epochs': 7},
        {'eval_every': 7},
        {'patience': 7},
        {'pretrain_epochs': 7},
        {'time_limit': 7.0},
        {'digest': '7'},
        {'revision': 7},
        {'denoising_lr': 7.0},
    ]
    fields = {field.name for field in dataclasses.fields(RunConfig)} - {'seed'}
    assert fields == {name for change in changes for name in change}
    settings = {make().setting, *(make(**change).setting for change in changes)}
    assert len(settings) == len(changes) + 1


@pytest.mark.parametrize(
    ('changes', 'text'),
    [
        ({'optimizer': 'sgd'}, r"'optimizer' must be one of .* \(got 'sgd'\)"),
        ({'epochs': 0}, r"'epochs' must be at least 1 \(got 0\)"),
        ({'eval_every': 0}, r"'eval_every' must be at least 1 \(got 0\)"),
        ({'patience': -1}, r"'patience' must be at least 1 \(got -1\)"),
        (
            {'epochs': 5, 'pretrain_epochs': 5},
            r"'pretrain_epochs' must be less than 'epochs' \(got 5 and 5\)",
        ),
    ],
)
def test_errors(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make(**changes)


def test_it_can_be_sent_to_another_process() -> None:
    config = make(denoising_lr=0.1)
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    assert again.options['k'] == 5
