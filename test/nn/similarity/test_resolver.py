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


@pytest.mark.parametrize('name', ['', 'Linear', 'gauss'])
def test_unknown_name(name):
    text = rf"'similarity' must be one of \['linear', .*'uniform'\] \(got '{name}'\)"
    with pytest.raises(ValueError, match=text):
        resolve_similarity(name, 5)


def test_wrong_width():
    text = "'similarity' expects 4 channels but it receives 5"
    with pytest.raises(ValueError, match=text):
        resolve_similarity(LinearSimilarity(4), 5)


@pytest.mark.parametrize('value', [None, 3, torch.nn.Linear(5, 5), LinearSimilarity])
def test_wrong_type(value):
    text = (
        rf"'similarity' must be a name or a Similarity \(got {type(value).__name__}\)"
    )
    with pytest.raises(TypeError, match=text):
        resolve_similarity(value, 5)
