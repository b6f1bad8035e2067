"""Quoted errors and warnings are those of the package; questions can be searched."""

import re
import warnings
from pathlib import Path

import pytest
import torch

from torch_geometric_gsl import Budget, GSLNet, NeuralGaussianSimilarity

DOCS = Path(__file__).resolve().parents[2] / 'docs'
X = torch.randn(20, 16, generator=torch.Generator().manual_seed(0))


def masked(text):
    """Replace numbers, which depend on the data."""
    return re.sub(r'\d+(\.\d+)?(e-\d+)?', '#', text)


def quoted():
    page = (DOCS / 'faq.rst').read_text(encoding='utf-8')
    return {masked(text) for text in re.findall(r'^``(.*)``\n   ', page, re.M)}


def net(**options):
    return GSLNet(16, 32, 2, 3, **options)


def explain_without_a_graph():
    module = pytest.importorskip('torch_geometric_gsl.sklearn')
    model = module.GSLClassifier('none', n_members=1, max_iter=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        model.fit(X.numpy(), [0, 1] * 10)
    model.kneighbors(X.numpy())


def find_no_signal():
    module = pytest.importorskip('torch_geometric_gsl.sklearn')
    options = {'n_members': 1, 'learning_rate': 1e-9, 'random_state': 0}
    rows = torch.randn(100, 3, generator=torch.Generator().manual_seed(0)).numpy()
    module.GSLRegressor('none', **options).fit(rows[:, :2], rows[:, 2])


def predict_far_rows():
    module = pytest.importorskip('torch_geometric_gsl.sklearn')
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0)).numpy()
    options = {'n_members': 1, 'max_iter': 5, 'random_state': 0}
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        model = module.GSLRegressor('learned', **options).fit(x, x[:, 0])
    model.predict(x[:40] + 50)


def join_other_classes():
    similarity = NeuralGaussianSimilarity(2, c_scale=0.1, bias=True, centre='tanh')
    similarity.begin_at(0.01)
    model = GSLNet(2, 4, 2, 2, similarity, z_channels=-1)
    for _ in range(50):
        model.loss(torch.eye(2).repeat(4, 1), torch.arange(8) % 2)


CASES = {
    'nan': lambda: net()(X.masked_fill(X[0, 0] == X, torch.nan)),
    'no graph': explain_without_a_graph,
    'chance': join_other_classes,
    'pairs': lambda: net(budget=Budget(eval_pairs=1000)).eval()(torch.randn(1500, 16)),
    'signal': find_no_signal,
    'far': predict_far_rows,
}


@pytest.mark.parametrize('case', CASES.values(), ids=CASES)
def test_the_text_is_that_of_the_package(case):
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        with pytest.raises((ValueError, TypeError, Warning)) as caught:
            case()
    name = f'{caught.type.__name__}: ' if issubclass(caught.type, Warning) else ''
    assert masked(f'{name}{caught.value}') in quoted()


def test_all_texts_are_tried():
    assert len(quoted()) == len(CASES)


@pytest.mark.parametrize(
    'words', ['missing values', 'GPU', 'out of memory', 'overfitting']
)
def test_headings_hold_what_people_search_for(words):
    text = (DOCS / 'faq.rst').read_text(encoding='utf-8')
    assert words in ' '.join(re.findall(r'^(.*)\n[\^]+$', text, re.M))
