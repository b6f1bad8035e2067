"""Configs, the runs that experiments choose, and what a method is beside them."""

import dataclasses
import hashlib
import inspect
import json

import pytest
import torch

from reproduction.experiments import (
    EXPERIMENTS,
    Choice,
    RunConfig,
    make_config,
)
from reproduction.files import write_json
from reproduction.settings import METHODS, gsl_net
from reproduction.training import build, parameter_groups

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
    config = make_config('wine', 'mlp', 0, label='y')
    assert (config.label, config.digest) == (None, None)


def test_tuned(tmp_path):
    with pytest.raises(ValueError, match="no search has tuned 'mlp' on 'wine' yet"):
        make_config('wine', 'mlp', 0, 'tuned', results=tmp_path)
    tuned = {'setting': {'lr': 0.25, 'dropout': 0.75}, 'preset': 'quick'}
    write_json(tmp_path / 'tuned.json', {'wine': {'mlp': tuned}})
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
    objects = {'options': {'k': 6}, 'optimizer': 'adamw'}
    changes = objects | texts | dict.fromkeys(numbers, 7)
    fields = {field.name for field in dataclasses.fields(RunConfig)} - {'seed'}
    assert fields == changes.keys()
    settings = {make(**{name: value}).setting for name, value in changes.items()}
    assert len(settings | {make().setting}) == len(changes) + 1


#: The digest of each method by its revision. A new option that is off by default
#: changes the digest but no result: the revision stays.
# Of ours they hold defaults, too, that `GSLNet.paper` overrides.
KNOWN = {
    ('gcn_knn', 0): '8d1c50c762',
    ('heat_gcn_knn', 0): 'bc521b0d59',
    ('linkx_knn', 0): '568c7cce30',
    ('slaps', 1): 'dd436fcca2',
    ('idgl', 0): 'dbdb416e3d',
    ('idgl_anchor', 0): '05fe474f5d',
    ('nodeformer', 0): '29aab05408',
    ('lin_sim', 0): 'b4fddd7078',
    ('lin_sim_t', 0): 'a811f85c38',
    ('gau_sim', 0): '5b3e3f3082',
    ('gau_sim_t', 0): 'c63e9ea6f6',
    ('neural_gau_sim', 0): 'bc94577bf2',
    ('neural_gau_sim_t', 0): 'a5f5259932',
    ('mlp', 0): 'a8f8c19b5a',
    ('knn_gcn_root', 0): '1f5b147a45',
    ('uniform', 0): 'adc7e61e2d',
}


# The modules whose defaults are settings of the runs.
OURS = 'torch_geometric_gsl', 'reproduction'


def digest(method, data):
    """Of the defaults and the plain attributes of all modules, options, and rates."""
    config = make_config('wine', method, 0)
    model = build(config, data)
    modules = {
        path: defaults(type(module)) | attributes(module)
        for path, module in model.named_modules()
        if type(module).__module__.startswith(OURS)
    }
    groups = [
        {name: value for name, value in group.items() if name != 'params'}
        for group in parameter_groups(model, config)
        if not isinstance(group, torch.nn.Parameter)
    ]
    content = [modules, METHODS[method].options, groups]
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def defaults(function):
    return {
        f'default of {name}': repr(parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }


def attributes(module):
    return {
        name: value
        for name, value in vars(module).items()
        if name[0] != '_' and isinstance(value, bool | int | float | str | None)
    }


@pytest.mark.parametrize('method', METHODS)
def test_a_change_needs_a_new_revision(method, data):
    key = method, METHODS[method].revision
    assert KNOWN.get(key) == digest(method, data), (
        f'defaults of {method} changed: raise its revision in METHODS, so that results '
        f'of before are those of another setting, then write {digest(method, data)!r} '
        'here for the new one'
    )


@pytest.mark.parametrize('candidates', [None, 4])
def test_self_loops_of_a_search_weigh_as_much_as_the_graph(candidates):
    size = {'num_nodes': 20, 'candidates': candidates}
    net = gsl_net(6, 8, 1, 3, **size, add_self_loops=True).eval()
    torch.nn.init.normal_(getattr(net, 'net', net).convs[0].bias)
    plain = gsl_net(6, 8, 1, 3, **size).eval()
    plain.load_state_dict(net.state_dict())
    x = torch.randn(20, 6)
    conv = getattr(net, 'net', net).convs[0]
    root = conv.lin_root(x) + conv.bias
    expected = (plain(x) - root + conv.lin(x)) / 2 + root
    torch.testing.assert_close(net(x), expected)
