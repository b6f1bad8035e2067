"""Pictures of graphs: what stands on their axes."""

import sys

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.image import imread
from sklearn.decomposition import PCA

from torch_geometric_gsl.typing import SampledGraph
from torch_geometric_gsl.visualization import plot_adjacency, plot_graph
from torch_geometric_gsl.visualization._colours import palette

NOTHING = SampledGraph(torch.empty(2, 0, dtype=torch.long), torch.empty(0))


def ring(num_nodes):
    node = torch.arange(num_nodes)
    edge_index = torch.stack([node, (node + 1) % num_nodes])
    return SampledGraph(edge_index, torch.linspace(0.1, 1, num_nodes))


def lines_of(ax):
    return {
        artist.get_gid(): artist
        for artist in ax.collections
        if isinstance(artist, LineCollection)
    }


def dots_of(ax):
    return [a for a in ax.collections if isinstance(a, PathCollection)]


# All pictures

PLOTS = {
    'graph': lambda **kwargs: plot_graph(ring(12), torch.arange(12) // 4, **kwargs),
    'adjacency': lambda **kwargs: plot_adjacency(ring(12), **kwargs),
}


@pytest.mark.parametrize('plot', PLOTS.values(), ids=PLOTS)
def test_axes_that_are_given_are_drawn_on_and_returned(plot):
    ax = Figure().subplots()
    assert plot(ax=ax) is ax
    assert ax.has_data()
    assert isinstance(plot(), Axes)
    for wrong in ('left', [ax]):
        with pytest.raises(TypeError, match="'ax' must be matplotlib axes"):
            plot(ax=wrong)


@pytest.mark.parametrize('plot', PLOTS.values(), ids=PLOTS)
def test_figures_are_saved_without_pyplot(plot, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, 'matplotlib.pyplot', raising=False)
    # A copy: reading the setting 'backend' chooses one, for which pyplot is imported.
    settings = mpl.rcParams.copy()
    ax = plot()
    figure = ax.figure
    figure.savefig(tmp_path / 'figure.png', dpi=50)
    image = imread(tmp_path / 'figure.png')
    # Something is drawn, and the margin is white.
    assert image.min() < 0.5
    assert np.allclose(image[0, 0], to_rgba('white'))
    assert mpl.rcParams == settings
    assert 'matplotlib.pyplot' not in sys.modules
    # Legends stand beside the drawing.
    figure.draw_without_rendering()
    if (legend := ax.get_legend()) is not None:
        box = legend.get_window_extent()
        assert box.x0 >= ax.get_window_extent().x1
        assert box.x1 <= figure.bbox.x1


def test_plots_need_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, 'matplotlib.figure', None)
    with pytest.raises(ImportError, match='pip install matplotlib'):
        plot_graph(ring(3))


def test_colours_of_classes_differ():
    # Nodes without a label are grey, the page is white.
    colours = [*palette(20), '#bbbbbb', '#ffffff']
    values = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours])
    apart = np.abs(values[:, None] - values).sum(axis=-1) + 999 * np.eye(22)
    assert apart.min() > 60
    assert len(set(palette(50))) == 50


# Graphs


def test_plot_adjacency_shows_weights_sorted_by_class():
    # Classes 5 and 7; the order of the nodes is 1, 3, 0, 2.
    y = torch.tensor([7, 5, 7, 5])
    edge_index = torch.tensor([[1, 0, 2, 1], [3, 2, 1, 1]])
    graph = SampledGraph(edge_index, torch.tensor([0.5, 0.25, 1.0, 0.75]))
    ax = plot_adjacency(graph, y)
    (_, bar) = ax.figure.axes
    expected = np.zeros((4, 4))
    expected[1, 0], expected[3, 2], expected[0, 3], expected[0, 0] = 0.5, 0.25, 1, 0.75
    assert np.array_equal(ax.images[0].get_array(), expected)
    assert [text.get_text() for text in ax.get_yticklabels()] == ['5', '7']
    assert ax.get_yticks().tolist() == [1, 3]
    assert ax.get_xlabel() == 'source node, by class'
    assert ax.get_title() == '4 nodes, 4 edges'
    assert bar.get_ylabel() == 'weight'
    right = plot_graph(graph, y)
    # Two classes of two nodes; the loop is not drawn.
    assert [len(dots.get_offsets()) for dots in dots_of(right)] == [2, 2]
    lines = lines_of(right)
    assert len(lines['edges between'].get_segments()) == 1
    colors = [dots.get_facecolors()[0].tolist() for dots in dots_of(right)]
    tints = lines['edges inside'].get_colors()[:, :3].tolist()
    assert tints == [colors[1][:3], colors[0][:3]]
    texts = [text.get_text() for text in right.get_legend().get_texts()]
    assert texts == ['class 5', 'class 7']


def test_plot_graph_says_how_much_weight_joins_classes():
    y = torch.tensor([0, 0, 1])
    edge_index = torch.tensor([[0, 2, 2], [1, 1, 2]])
    ax = plot_graph((edge_index, torch.tensor([3.0, 1.0, 9.0])), y)
    assert ax.get_title() == (
        '3 nodes and their strongest edges\n'
        '75 % of the weight joins equal classes (33 % by chance)'
    )
    text = '3 nodes and their strongest edges'
    assert plot_graph(ring(3)).get_title() == text
    assert plot_graph(NOTHING, torch.tensor([0, 1, 1])).get_title() == text
    for plot in (plot_graph, plot_adjacency):
        plot(NOTHING, torch.tensor([0])).figure.draw_without_rendering()


def test_plot_graph_draws_edges_between_their_nodes():
    pos = torch.tensor([[0.0, 0.0], [4.0, 1.0], [2.0, 3.0]])
    right = plot_graph(ring(3), pos=pos)
    (dots,) = dots_of(right)
    assert dots.get_offsets().tolist() == pos.tolist()
    # Sorted by target.
    ends = [pos[[(i - 1) % 3, i]].tolist() for i in range(3)]
    lines = lines_of(right)['edges between']
    assert [segment.tolist() for segment in lines.get_segments()] == ends
    # Stronger edges are wider: the weights are 1, 0.1 and 0.55.
    assert lines.get_linewidths() == pytest.approx([2, 0.65, 1.325])
    assert right.get_xlabel() == 'position 1'
    assert right.get_legend() is None


def test_plot_graph_draws_the_strongest_edges():
    # Node 0 hears six others; three are drawn, and no edge of weight zero.
    edge_index = torch.tensor([[1, 2, 3, 4, 5, 6, 0], [0, 0, 0, 0, 0, 0, 1]])
    weight = torch.tensor([0.1, 0.6, 0.2, 0.5, 0.3, 0.4, 0.0])
    right = plot_graph((edge_index, weight), pos=torch.arange(14.0).view(7, 2))
    segments = lines_of(right)['edges between'].get_segments()
    assert sorted(segment[0, 0] / 2 for segment in segments) == [2, 4, 6]


def test_plot_graph_of_many_nodes():
    y = torch.arange(40) // 20
    graph = ring(40)
    left, bar = plot_adjacency(graph, y, max_cells=8).figure.axes
    # Five nodes share a cell: four of five edges stay inside it.
    matrix = left.images[0].get_array()
    assert matrix.shape == (8, 8)
    assert matrix.sum() == pytest.approx(float(graph.edge_weight.sum()) / 5)
    assert np.count_nonzero(matrix) == 16
    assert bar.get_ylabel() == 'mean weight of a target'
    # Two nodes at random, each with the one source that it has.
    right = plot_graph(graph, y, max_nodes=8)
    num_nodes = sum(len(dots.get_offsets()) for dots in dots_of(right))
    assert 3 <= num_nodes <= 4
    text = f'{num_nodes} of 40 nodes and their strongest edges'
    assert right.get_title().splitlines()[0] == text


def test_plot_graph_of_many_classes():
    graph = ring(30)
    graph.edge_weight.requires_grad_()
    styles = {
        (tuple(dots.get_facecolors()[0]), len(dots.get_paths()[0].vertices))
        for dots in dots_of(plot_graph(graph, torch.arange(30)))
    }
    assert len(styles) == 30


BOTH = (plot_graph, plot_adjacency)


@pytest.mark.parametrize(
    ('plots', 'kwargs', 'error', 'match'),
    [
        (BOTH, {'y': 3}, TypeError, r"'y' must be a tensor, an array .*\(got int\)"),
        (BOTH, {'y': [0.5, 1, 2]}, TypeError, r"'y' must be an integer torch.Tensor"),
        (BOTH, {'graph': NOTHING}, ValueError, "'graph' must have nodes"),
        (BOTH[1:], {'max_cells': 0}, ValueError, r"'max_cells' must be .* \(got 0\)"),
        (BOTH[:1], {'max_nodes': 3}, ValueError, r"'max_nodes' must be .* \(got 3\)"),
        (BOTH[:1], {'pos': torch.zeros(3)}, ValueError, r"'pos' must .* \(got \[3\]"),
        (
            BOTH[:1],
            {'pos': torch.eye(3).to_sparse_csr()},
            ValueError,
            "'pos' must be dense",
        ),
        (
            BOTH[:1],
            {'y': torch.tensor([0] * 4), 'pos': torch.zeros(3, 2)},
            ValueError,
            r"'pos' must have one row per node \(got 3 for 4 nodes\)",
        ),
    ],
)
def test_errors(plots, kwargs, error, match):
    for plot in plots:
        with pytest.raises(error, match=match):
            plot(**{'graph': ring(3), **kwargs})


def places(graph, **kwargs):
    (dots,) = dots_of(plot_graph(graph, **kwargs))
    return torch.from_numpy(np.asarray(dots.get_offsets()))


def test_edges_pull_their_nodes_together():
    # Two cliques of five nodes.
    pairs = torch.cartesian_prod(torch.arange(5), torch.arange(5)).t()
    graph = torch.cat([pairs, pairs + 5], dim=1), torch.ones(50)
    state = torch.get_rng_state()
    pos, again, reseeded = (places(graph, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(pos, again)
    assert not torch.equal(pos, reseeded)
    assert torch.equal(torch.get_rng_state(), state)
    distance = torch.cdist(pos, pos)
    inside, between = distance[:5, :5], distance[:5, 5:]
    assert between.min() > max(inside.max(), distance[5:, 5:].max()) / 2
    assert between.mean() > 2 * inside.mean()


def test_features_are_shown_by_their_principal_components():
    x = torch.randn(12, 5) * torch.tensor([1.0, 2, 3, 4, 5])
    pos = places(ring(12), pos=x + 3)
    expected = PCA(2).fit_transform(x.double().numpy())
    assert np.allclose(pos.abs(), np.abs(expected), atol=1e-5)
    # The sign is not left to chance: the largest entry of an axis is positive.
    axes = (x - x.mean(dim=0)).double().t() @ pos
    torch.testing.assert_close(axes.amax(dim=0), axes.abs().amax(dim=0))
    narrow = places(ring(12), pos=torch.randn(12, 1))
    assert bool((narrow[:, 1] == 0).all())  # A missing axis is zero.


@pytest.mark.parametrize('names', [('no', 'yes'), (-1, 1)])
def test_labels_whatever_holds_them(names):
    y = [names[i] for i in (1, 0, 1, 0)]
    expected = plot_adjacency(ring(4), torch.tensor([1, 0, 1, 0])).images[0]
    for labels in (y, np.array(y), np.array(y, dtype=object)):
        axes = plot_adjacency(ring(4), labels)
        assert np.array_equal(axes.images[0].get_array(), expected.get_array())
        texts = [text.get_text() for text in axes.get_yticklabels()]
        assert texts == [str(name) for name in names]
