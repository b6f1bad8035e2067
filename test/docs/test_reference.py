"""The check of the reference finds each public name and method without an entry."""

import importlib
from pathlib import Path

import pytest

import torch_geometric_gsl as gsl
from torch_geometric_gsl.transforms import ToSparseFeatures

EXTENSIONS = Path(__file__).resolve().parents[2] / 'docs' / '_ext'


@pytest.fixture
def reference(monkeypatch):
    pytest.importorskip('sphinx')
    monkeypatch.syspath_prepend(EXTENSIONS)
    return importlib.import_module('reference')


@pytest.fixture
def documented(reference):
    """The entries of pages that show every name."""
    entries = set()
    for value, paths in reference.public_names().values():
        methods = reference.public_methods(value) if isinstance(value, type) else ()
        entries |= {paths[0]} | {f'{paths[0]}.{method}' for method in methods}
    return entries


def test_methods_are_those_of_the_package(reference):
    methods = {*reference.public_methods(gsl.GSLNet)}
    assert methods >= {'index', 'clear_index', 'paper', 'choose_anchors', 'loss'}
    assert methods >= {'save', 'load', 'predict'}
    assert methods.isdisjoint({'to', 'cuda', 'parameters'})
    assert 'forward' not in {*reference.public_methods(ToSparseFeatures)}


@pytest.mark.parametrize(
    'name',
    [
        'GSLNet',
        'GSLNet.index',
        'KNNGCN.save',
        'GSLClassifier.predict_proba',
        'DATASETS',
        'describe_graph',
        'SampledGraph',
        'best_sources',
    ],
)
def test_a_missing_entry_is_named(reference, documented, name):
    assert reference.missing_names(documented) == []
    rest = {path for path in documented if not path.endswith(f'.{name}')}
    assert reference.missing_names(rest) == [name]
