import math
import sys

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.image import imread
from pictures import bells, ring

from torch_geometric_gsl.diagnostics.summaries import ModelSummary
from torch_geometric_gsl.nn.similarity import (
    GaussianSimilarity,
)
from torch_geometric_gsl.visualization import (
    plot_adjacency,
    plot_gaussian_parameters,
    plot_graph,
    plot_similarity_curves,
)


@pytest.mark.parametrize('top', [0.37, 3.0, 0.0021])
def test_ticks_are_round(top):
    n = 40
    edge_index = torch.randint(n, (2, 300))
    ax = plot_adjacency((edge_index, top * torch.rand(300)))
    ax.figure.draw_without_rendering()
    bar = ax.figure.axes[1]
    for ticks in (bar.get_yticks(), ax.get_xticks(), ax.get_yticks()):
        steps = np.diff(ticks)
        assert np.allclose(steps, steps[0])
        digit = steps[0] / 10 ** math.floor(math.log10(steps[0]) + 1e-9)
        assert round(digit, 6) in (1, 2, 5)


#: One call of each function, and how many axes it draws on.
PLOTS = {
    'graph': (
        lambda **kwargs: plot_graph(ring(12), torch.arange(12) // 4, **kwargs),
        1,
    ),
    'adjacency': (lambda **kwargs: plot_adjacency(ring(12), **kwargs), 1),
    'curves': (
        lambda **kwargs: plot_similarity_curves(
            [bells(), GaussianSimilarity(4)], **kwargs
        ),
        2,
    ),
    'parameters': (
        lambda **kwargs: plot_gaussian_parameters(ModelSummary((bells(),)), **kwargs),
        2,
    ),
}


@pytest.mark.parametrize(('plot', 'number'), PLOTS.values(), ids=PLOTS)
def test_axes_that_are_given_are_drawn_on_and_returned(plot, number):
    axes = Figure().subplots(1, number, squeeze=False)[0]
    found = plot(ax=axes[0] if number == 1 else axes)
    assert list(np.ravel(found)) == list(axes)
    assert all(ax.has_data() for ax in axes)
    made = plot()
    assert isinstance(made, Axes) if number == 1 else made.shape == (2,)
    other = [axes[0]] * (3 - number)
    with pytest.raises(ValueError, match=rf"'ax' must be .*\(got {3 - number}\)"):
        plot(ax=other)
    with pytest.raises(TypeError, match=r"'ax' must be .* \(got str\)"):
        plot(ax='left')


@pytest.mark.parametrize(('plot', 'number'), PLOTS.values(), ids=PLOTS)
def test_legends_stand_beside_the_drawing(plot, number):
    axes = list(np.ravel(plot()))
    figure = axes[0].figure
    figure.draw_without_rendering()
    for ax in axes:
        if (legend := ax.get_legend()) is not None:
            box = legend.get_window_extent()
            assert box.x0 >= ax.get_window_extent().x1
            assert box.x1 <= figure.bbox.x1


@pytest.mark.parametrize(('plot', 'number'), PLOTS.values(), ids=PLOTS)
def test_figures_are_saved_without_pyplot(plot, number, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, 'matplotlib.pyplot', raising=False)
    # A copy: reading the setting 'backend' chooses one, for which pyplot is imported.
    settings = mpl.rcParams.copy()
    figure = np.ravel(plot())[0].figure
    figure.savefig(tmp_path / 'figure.png', dpi=50)
    figure.savefig(tmp_path / 'figure.svg')
    image = imread(tmp_path / 'figure.png')
    # Something is drawn, and the margin is white.
    assert image.min() < 0.5
    assert np.allclose(image[0, 0], to_rgba('white'))
    assert mpl.rcParams == settings
    assert 'matplotlib.pyplot' not in sys.modules


def test_plots_need_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, 'matplotlib.figure', None)
    with pytest.raises(ImportError, match='pip install matplotlib'):
        plot_graph(ring(3))
