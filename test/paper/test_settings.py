"""What a method is beyond its setting: results are reused where it is the same."""

import hashlib
import inspect
import json

import pytest
import torch

from reproduction.experiments import make_config
from reproduction.settings import METHODS
from reproduction.training import build, parameter_groups

#: The digest of each method by its revision. A new option that is off by default
#: changes the digest but no result: the revision stays.
KNOWN = {
    ('gcn_knn', 0): '8d1c50c762',
    ('heat_gcn_knn', 0): 'bc521b0d59',
    ('linkx_knn', 0): '568c7cce30',
    ('slaps', 1): 'dd436fcca2',
    ('idgl', 0): 'dbdb416e3d',
    ('idgl_anchor', 0): '05fe474f5d',
    ('nodeformer', 0): '29aab05408',
    ('lin_sim', 0): '158cee1a11',
    ('lin_sim_t', 0): '0e65a2f757',
    ('gau_sim', 0): '515f52be13',
    ('gau_sim_t', 0): 'a2de5b0bfc',
    ('neural_gau_sim', 0): '63d72b1699',
    ('neural_gau_sim_t', 0): 'f6ccac9b67',
    ('mlp', 0): 'a8f8c19b5a',
    ('knn_gcn_root', 0): '1f5b147a45',
    ('uniform', 0): '398dbfd198',
}


def digest(method, data):
    """Of the defaults and the plain attributes of all modules, options, and rates."""
    config = make_config('wine', method, 0)
    model = build(config, data)
    modules = {
        path: defaults(type(module)) | attributes(module)
        for path, module in model.named_modules()
        if type(module).__module__.startswith('torch_geometric_gsl')
    }
    groups = [
        {name: value for name, value in group.items() if name != 'params'}
        for group in parameter_groups(model, config)
        if not isinstance(group, torch.nn.Parameter)
    ]
    content = [modules, METHODS[method].options, groups]
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def defaults(kind):
    return {
        f'default of {name}': repr(parameter.default)
        for name, parameter in inspect.signature(kind).parameters.items()
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
