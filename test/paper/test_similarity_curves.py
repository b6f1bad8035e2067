"""Curves of similarities against their formulas."""

import math

import numpy as np

from reproduction.similarity_curves import plot_similarity_curves
from torch_geometric_gsl.nn.similarity import (
    DifferenceSimilarity,
    GaussianSimilarity,
    HeatKernelSimilarity,
    LinearSimilarity,
)


def test_curves_by_hand():
    figure = plot_similarity_curves(
        {
            'LinSim': LinearSimilarity(4),
            'DiffSim': DifferenceSimilarity(4),
            'GauSim': GaussianSimilarity(4),
            'heat': HeatKernelSimilarity(4, t=2.0),
        }
    )
    t = np.linspace(-1, 1, 801)
    expected = {
        'LinSim': t,
        'DiffSim': 1 - t,
        'GauSim': np.exp(-((t - 0.5) ** 2) / (0.02 * math.e)),
        'heat': np.exp(-(2 - 2 * t) / 2),
    }
    left, right = figure.axes
    curves = {line.get_label(): line for line in left.lines}
    weights = {line.get_label(): line for line in right.lines}
    for name, value in expected.items():
        assert np.allclose(curves[name].get_xdata(), t)
        assert np.allclose(curves[name].get_ydata(), value)
        weight = np.exp(value)
        assert np.allclose(weights[name].get_ydata(), weight / weight.mean())
    looks = {(line.get_color(), line.get_linestyle()) for line in curves.values()}
    assert len(looks) == 4
    texts = [text.get_text() for text in right.get_legend().get_texts()]
    assert texts == list(expected)
