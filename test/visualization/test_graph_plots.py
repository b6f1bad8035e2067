"""Pictures of graphs: nodes with edges, and matrices."""

import numpy as np
import pytest
import torch
from pictures import NOTHING, dots_of, lines_of, ring
from sklearn.decomposition import PCA

from torch_geometric_gsl.typing import SampledGraph
from torch_geometric_gsl.visualization import (
    plot_adjacency,
    plot_graph,
)


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


@pytest.mark.parametrize('y', [torch.tensor([0, 1]), torch.tensor([0])])
def test_graphs_without_edges_are_drawn(y):
    for plot in (plot_graph, plot_adjacency):
        plot(NOTHING, y).figure.draw_without_rendering()


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
    pos = torch.arange(14.0).view(7, 2)
    right = plot_graph((edge_index, weight), pos=pos)
    segments = lines_of(right)['edges between'].get_segments()
    assert sorted(segment[0, 0] / 2 for segment in segments) == [2, 4, 6]


def test_plot_graph_of_many_nodes():
    y = torch.arange(40) // 20
    graph = ring(40)
    state = torch.get_rng_state()
    right = plot_graph(graph, y, max_nodes=8)
    assert torch.equal(state, torch.get_rng_state())
    left, bar = plot_adjacency(graph, y, max_cells=8).figure.axes
    # Five nodes share a cell: four of five edges stay inside it.
    matrix = left.images[0].get_array()
    assert matrix.shape == (8, 8)
    assert matrix.sum() == pytest.approx(float(graph.edge_weight.sum()) / 5)
    assert np.count_nonzero(matrix) == 16
    assert bar.get_ylabel() == 'mean weight of a target'
    # Two nodes at random, each with the one source that it has.
    places = [np.asarray(dots.get_offsets()) for dots in dots_of(right)]
    number = sum(map(len, places))
    assert 3 <= number <= 4
    text = f'{number} of 40 nodes and their strongest edges'
    assert right.get_title().splitlines()[0] == text
    again = dots_of(plot_graph(graph, y, max_nodes=8))
    for place, dots in zip(places, again, strict=True):
        assert np.array_equal(place, dots.get_offsets())
    other = dots_of(plot_graph(graph, y, max_nodes=8, seed=1))
    assert not np.array_equal(places[0], other[0].get_offsets())


def test_plot_graph_of_features_with_gradient_and_many_classes():
    graph, x = ring(10), torch.randn(10, 5).requires_grad_()
    graph.edge_weight.requires_grad_()
    right = plot_graph(graph, torch.arange(10), x)
    # The principal components of the features.
    offsets = np.concatenate([dots.get_offsets() for dots in dots_of(right)])
    singular = torch.linalg.svdvals((x - x.mean(dim=0)).detach().double())
    assert np.allclose(np.linalg.norm(offsets, axis=0), singular[:2])
    assert right.get_ylabel() == 'principal component 2'
    styles = {
        (tuple(dots.get_facecolors()[0]), len(dots.get_paths()[0].vertices))
        for dots in dots_of(right)
    }
    assert len(styles) == 10


BOTH = (plot_graph, plot_adjacency)


@pytest.mark.parametrize(
    ('plots', 'kwargs', 'error', 'match'),
    [
        (BOTH, {'y': 3}, TypeError, r"'y' must be a tensor, an array .*\(got int\)"),
        (BOTH, {'y': [0.5, 1, 2]}, TypeError, r"'y' must be an integer torch.Tensor"),
        (BOTH, {'y': torch.tensor([0])}, ValueError, 'one label per node'),
        (BOTH, {'graph': None}, TypeError, r"'graph' must be .* \(got NoneType\)"),
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
    edge_index = torch.cat([pairs, pairs + 5], dim=1)
    graph, state = (edge_index, torch.ones(50)), torch.get_rng_state()
    place, again, other = (places(graph, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(place, again)
    assert not torch.equal(place, other)
    assert torch.equal(torch.get_rng_state(), state)
    distance = torch.cdist(place, place)
    inside, between = distance[:5, :5], distance[:5, 5:]
    assert between.min() > max(inside.max(), distance[5:, 5:].max()) / 2
    assert between.mean() > 2 * inside.mean()


def test_features_are_shown_by_their_principal_components():
    x = torch.randn(12, 5) * torch.tensor([1.0, 2, 3, 4, 5])
    place = places(ring(12), pos=x + 3)
    expected = PCA(2).fit_transform(x.double().numpy())
    assert np.allclose(place.abs(), np.abs(expected), atol=1e-5)
    # The sign is not left to chance: the largest entry of an axis is positive.
    axes = (x - x.mean(dim=0)).double().t() @ place
    torch.testing.assert_close(axes.amax(dim=0), axes.abs().amax(dim=0))
    for width in (0, 1):  # A missing axis is zero.
        assert bool(
            (places(ring(12), pos=torch.randn(12, width))[:, width:] == 0).all()
        )


@pytest.mark.parametrize('make', [list, np.array, lambda y: np.array(y, dtype=object)])
@pytest.mark.parametrize('names', [('no', 'yes'), (5, 7), (-1, 1)])
def test_labels_whatever_holds_them(make, names):
    y = [names[i] for i in (1, 0, 1, 0)]
    for plot in (plot_adjacency, plot_graph):
        found = plot(ring(4), make(y))
        expected = plot(ring(4), torch.tensor([1, 0, 1, 0]))
        assert found.get_title() == expected.get_title()
        if plot is plot_adjacency:
            texts = [text.get_text() for text in found.get_yticklabels()]
            image, other = (ax.images[0].get_array() for ax in (found, expected))
            assert np.array_equal(image, other)
        else:
            texts = [text.get_text() for text in found.get_legend().get_texts()]
            texts = [text.removeprefix('class ') for text in texts]
        assert texts == [str(name) for name in names]
