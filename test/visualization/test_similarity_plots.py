"""Pictures of similarities: curves over the cosine, and the bells of layers."""

import math

import numpy as np
import pytest
from pictures import bells, layer

from torch_geometric_gsl.diagnostics.summaries import ModelSummary
from torch_geometric_gsl.nn.similarity import (
    CosineSimilarity,
    DifferenceSimilarity,
    GaussianSimilarity,
    HeatKernelSimilarity,
    LinearSimilarity,
    NeuralGaussianSimilarity,
    UniformSimilarity,
)
from torch_geometric_gsl.visualization import (
    plot_gaussian_parameters,
    plot_similarity_curves,
)


def test_plot_similarity_curves_by_hand():
    left, right = plot_similarity_curves(
        {
            'LinSim': LinearSimilarity(4),
            'DiffSim': DifferenceSimilarity(4),
            'GauSim': GaussianSimilarity(4),
            'heat': HeatKernelSimilarity(4, t=2.0),
            'flat': UniformSimilarity(4),
        },
        scale=3.0,
    )
    t = np.linspace(-1, 1, 801)
    expected = {
        'LinSim': t,
        'DiffSim': 1 - t,
        'GauSim': np.exp(-((t - 0.5) ** 2) / (0.02 * math.e)),
        'heat': np.exp(-(2 - 2 * t) / 2),
        'flat': np.zeros(801),
    }
    curves = {line.get_label(): line for line in left.lines}
    weights = {line.get_label(): line for line in right.lines}
    for name, value in expected.items():
        assert np.allclose(curves[name].get_xdata(), t)
        assert np.allclose(curves[name].get_ydata(), value)
        weight = np.exp(3 * value)
        assert np.allclose(weights[name].get_ydata(), weight / weight.mean())
    looks = {(line.get_color(), line.get_linestyle()) for line in curves.values()}
    assert len(looks) == 5
    texts = [text.get_text() for text in right.get_legend().get_texts()]
    assert texts == list(expected)
    assert left.get_xticks().tolist() == [-1, -0.5, 0, 0.5, 1]
    assert left.get_xlabel() == 'cosine $t$ of the two nodes'
    assert r'$\lambda = 3$' in right.get_title()


def test_plot_similarity_curves_shows_the_band_of_the_bells():
    left, right = plot_similarity_curves([bells(), LinearSimilarity(4)])
    assert [line.get_label() for line in left.lines] == [
        'convs.0.sampler',
        'LinearSimilarity',
    ]
    t = left.lines[0].get_xdata()
    middle = np.exp(-((t - 0.3) ** 2) / 0.04)
    assert np.allclose(left.lines[0].get_ydata(), middle)
    # Every bell with b and c between their quartiles, on a fine grid.
    grid = [
        np.exp(-((t - b) ** 2) / c)
        for b in np.linspace(0.25, 0.35, 41)
        for c in np.linspace(0.03, 0.06, 7)
    ]
    for ax, scale in ((left, lambda s: s), (right, lambda s: np.exp(s))):
        uniform = 1 if ax is left else np.exp(middle).mean()
        (band,) = ax.collections
        # Up along the lower edge, back along the upper.
        points = band.get_paths()[0].vertices
        low, high = points[1:802, 1], points[803:1604, 1][::-1]
        assert np.allclose(low, scale(np.min(grid, axis=0)) / uniform, atol=2e-3)
        assert np.allclose(high, scale(np.max(grid, axis=0)) / uniform, atol=2e-3)


def test_plot_gaussian_parameters():
    layers = (bells(), layer('convs.1.sampler'), bells('convs.2.sampler'))
    left, right = plot_gaussian_parameters(ModelSummary(layers))
    for ax, median, fixed in ((left, 0.3, 0.5), (right, 0.04, 0.02 * math.e)):
        names = [text.get_text() for text in ax.get_xticklabels()]
        assert names == ['convs.0', 'convs.2']
        assert len(ax.patches) == 2
        flat = [line.get_ydata() for line in ax.lines]
        assert sum(np.allclose(y, median) for y in flat) == 2
        assert sum(np.allclose(y, fixed) for y in flat) == 1
    assert left.get_ylabel() == 'centre $b$ (cosine)'
    assert right.get_ylabel() == 'width $c$ (squared cosine)'


@pytest.mark.parametrize(
    ('similarities', 'error', 'match'),
    [
        ([], ValueError, "'similarities' must not be empty"),
        ([3], TypeError, r"'similarities' must hold .* \(got int\)"),
        ([NeuralGaussianSimilarity(4)], ValueError, 'one bell per node: .* instead'),
        ([layer()], ValueError, r'\(got the layer Sampler\(\)\)'),
        (
            [HeatKernelSimilarity(4, normalize=False)],
            ValueError,
            'must be functions of the cosine of two embeddings, which HeatKernelSimila',
        ),
        ([CosineSimilarity(4)], ValueError, 'which CosineSimilarity.* is not'),
    ],
)
def test_plot_similarity_curves_errors(similarities, error, match):
    with pytest.raises(error, match=match):
        plot_similarity_curves(similarities)


def test_other_errors():
    with pytest.raises(ValueError, match="'scale' must be positive"):
        plot_similarity_curves([LinearSimilarity(4)], scale=0)
    with pytest.raises(TypeError, match=r'must be a ModelSummary \(got list\)'):
        plot_gaussian_parameters([bells()])
    with pytest.raises(ValueError, match=r"neural Gaussian .* \(got \['Sampler"):
        plot_gaussian_parameters(ModelSummary((layer(),)))
