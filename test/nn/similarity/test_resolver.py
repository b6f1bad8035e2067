import csv
import re
from pathlib import Path

import pytest
import torch

from torch_geometric_gsl import (
    DirectedSimilarity,
    GumbelKNNSampler,
    LinearSimilarity,
    Similarity,
    UniformSimilarity,
)
from torch_geometric_gsl.nn.similarity.resolver import (
    NAMED,
    SIMILARITIES,
    resolve_similarity,
)


@pytest.mark.parametrize('name', SIMILARITIES)
def test_names(name):
    module = resolve_similarity(name, 5)
    words = [word.capitalize() for word in name.split('_')]
    assert type(module).__name__ == f'{"".join(words)}Similarity'
    assert module.in_channels == 5


def test_every_similarity_has_a_name():
    types = [
        cls
        for cls in Similarity.__subclasses__()
        if cls.__module__.startswith('torch_geometric_gsl')
    ]
    # One that compares by another similarity has no name of its own.
    assert {*SIMILARITIES.values(), UniformSimilarity, DirectedSimilarity} == set(types)
    assert type(resolve_similarity('uniform', 5)) is UniformSimilarity


def test_every_name_is_in_the_table_of_similarities():
    tables = Path(__file__).resolve().parents[3] / 'docs/_tables'
    text = (tables / 'choosing_similarities.csv').read_text(encoding='utf-8')
    rows = [row for row, *_ in csv.reader(text.splitlines()[1:])]
    names = [re.search(r"``'(\w+)'``", row)[1] for row in rows]
    assert sorted(names) == sorted(NAMED)


def test_arguments_are_passed_on_and_modules_through():
    module = resolve_similarity('cosine', 5, out_channels=2, heads=3)
    assert str(module) == 'CosineSimilarity(5, 2, heads=3)'
    assert resolve_similarity(module, 5) is module


@pytest.mark.parametrize(
    ('value', 'error', 'text'),
    [
        ('', ValueError, r"must be one of \['linear', .*'uniform'\] \(got ''\)"),
        ('Linear', ValueError, r"must be one of \['linear', .* \(got 'Linear'\)"),
        (LinearSimilarity(4), ValueError, r'in_channels=5, .* \(got 4\)'),
        (None, TypeError, r'must be a name or a Similarity \(got NoneType\)'),
        (torch.nn.Linear(5, 5), TypeError, r'or a Similarity \(got Linear\)'),
        (LinearSimilarity, TypeError, r'or a Similarity \(got .*\)'),
    ],
)
def test_errors(value, error, text):
    with pytest.raises(error, match=f"'similarity' .*{text}"):
        resolve_similarity(value, 5)


def test_repr_of_the_uniform_similarity():
    module = UniformSimilarity(16)
    assert str(module) == 'UniformSimilarity(16)'
    assert list(module.parameters()) == []
    assert module.embedding_channels == 1
    module.reset_parameters()


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32, torch.bfloat16])
def test_uniform_scores_are_zero(dtype):
    module, x = UniformSimilarity(3), torch.randn(4, 3).to(dtype)
    for features in (x, x.to_sparse_csr(), x.t().contiguous().t()):
        assert torch.equal(module(features), torch.zeros(4, 4, dtype=dtype))
    assert torch.equal(module((x, x[:2])), torch.zeros(2, 4, dtype=dtype))
    edges = torch.tensor([[0, 3], [1, 1]])
    assert torch.equal(module(x, edges), torch.zeros(2, dtype=dtype))


def test_a_race_accepts_every_proposal():
    plan = GumbelKNNSampler.paper(UniformSimilarity(3)).plan(torch.randn(80, 3))
    assert (plan.method, plan.num_proposals) == ('race', 8)


@pytest.mark.parametrize(
    ('args', 'error', 'text'),
    [
        ((0,), ValueError, r"'in_channels' must be at least 1 \(got 0\)"),
        ((3.0,), TypeError, "'in_channels' must be an integer"),
        ((3, 2), TypeError, 'takes 2 positional arguments but 3 were given'),
    ],
)
def test_wrong_arguments(args, error, text):
    with pytest.raises(error, match=text):
        UniformSimilarity(*args)
