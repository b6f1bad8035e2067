import pytest
import torch

from torch_geometric_gsl import (
    DirectedSimilarity,
    LinearSimilarity,
    Similarity,
    UniformSimilarity,
)
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, resolve_similarity


@pytest.mark.parametrize('name', SIMILARITIES)
def test_names(name):
    module = resolve_similarity(name, 5)
    words = [word.capitalize() for word in name.split('_')]
    assert type(module).__name__ == f'{"".join(words)}Similarity'
    assert module.in_channels == 5


def test_every_similarity_has_a_name():
    own = [
        cls
        for cls in Similarity.__subclasses__()
        if cls.__module__.startswith('torch_geometric_gsl')
    ]
    # One that compares by another similarity has no name of its own.
    assert {*SIMILARITIES.values(), UniformSimilarity, DirectedSimilarity} == set(own)
    assert type(resolve_similarity('uniform', 5)) is UniformSimilarity


def test_arguments_are_passed_on_and_modules_through():
    module = resolve_similarity('cosine', 5, out_channels=2, heads=3)
    assert str(module) == 'CosineSimilarity(5, 2, heads=3)'
    assert resolve_similarity(module, 5) is module


@pytest.mark.parametrize(
    ('value', 'error', 'text'),
    [
        ('', ValueError, r"must be one of \['linear', .*'bell'\] \(got ''\)"),
        ('Linear', ValueError, r"must be one of \['linear', .* \(got 'Linear'\)"),
        (LinearSimilarity(4), ValueError, 'expects 4 channels but it receives 5'),
        (None, TypeError, r'must be a name or a Similarity \(got NoneType\)'),
        (torch.nn.Linear(5, 5), TypeError, r'or a Similarity \(got Linear\)'),
        (LinearSimilarity, TypeError, r'or a Similarity \(got .*\)'),
    ],
)
def test_errors(value, error, text):
    with pytest.raises(error, match=f"'similarity' .*{text}"):
        resolve_similarity(value, 5)
