import pytest
import torch

from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.cosine_similarity import CosineSimilarity
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, resolve_similarity
from torch_geometric_gsl.nn.similarity.uniform_similarity import UniformSimilarity


@pytest.mark.parametrize('name', SIMILARITIES)
def test_names(cases, name):
    module = resolve_similarity(name, 5)
    assert type(module) is cases[name].cls
    assert module.in_channels == 5
    assert module(torch.randn(3, 5)).shape == (3, 3)


def test_every_similarity_has_a_name():
    own = [
        cls
        for cls in Similarity.__subclasses__()
        if cls.__module__.startswith('torch_geometric_gsl')
    ]
    assert {*SIMILARITIES.values(), UniformSimilarity} == set(own)
    assert type(resolve_similarity('uniform', 5)) is UniformSimilarity
    assert len(SIMILARITIES) == 6


def test_arguments_are_passed_on():
    module = resolve_similarity('cosine', 5, out_channels=2, heads=3)
    assert str(module) == 'CosineSimilarity(5, 2, heads=3)'


def test_modules_pass_through():
    module = CosineSimilarity(5)
    assert resolve_similarity(module, 5) is module


@pytest.mark.parametrize(
    ('value', 'error', 'text'),
    [
        ('', ValueError, r"must be one of \['linear', .*'uniform'\] \(got ''\)"),
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
