"""Write an HTML page to explore a graph in the browser."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_geometric_gsl._checks import check_count, check_graph, check_type
from torch_geometric_gsl._files import atomic_write
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import (
    GumbelKNNSampler,
    is_untrained,
)
from torch_geometric_gsl.nn.shared_module import evaluation
from torch_geometric_gsl.ops.edges import chance_share, same_label_share
from torch_geometric_gsl.typing import SampledGraph
from torch_geometric_gsl.visualization._colours import (
    Json,
    Values,
    as_names,
    check_x,
    class_colours,
    column_colours,
    feature_colours,
    read_columns,
    read_values,
    rounded,
)
from torch_geometric_gsl.visualization._layout import (
    agreed_count,
    check_one_set,
    initial_positions,
)
from torch_geometric_gsl.visualization._page import image_sprite, make_page

#: A graph of this package, of PyTorch Geometric, or a sparse matrix of SciPy.
Graph = Any
#: The classes of nodes by the mask of new ones.
_ROWS = ['training', 'new']
_UNTRAINED = 'This model was never trained: nothing in its graph is learned yet.'


def explore(
    graph: Graph | Mapping[str, Graph] | torch.nn.Module,
    *,
    data: Data | None = None,
    path: str | os.PathLike[str] = 'graph.html',
    prediction: Any = None,
    images: Tensor | None = None,
    names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    columns: Any = None,
    title: str = 'Learned graph',
    max_edges: int = 50_000,
    max_features: int = 32,
    seed: int = 0,
    target_name: str = 'target',
    new_mask: Tensor | None = None,
) -> Path:
    r"""Write a self-contained page to explore a graph offline.

    Open it in a browser. It opens with the two heaviest edges into each node; a slider
    shows more. The wheel zooms. Point at a node to see its neighbours with their
    weights, its target, its features and its image; click or tap to keep it selected.
    Search nodes by name, colour them by target, prediction or feature, and hide edges
    below a weight. The page prints the homophily of the edges shown (the correlation if
    the colour is a number), has a dark mode, and compares two graphs side by side. It
    says so if the model was never trained, or if equal labels are joined as by chance.

    ForceAtlas2 places the nodes by the edges shown, unless :obj:`data.pos` is given.
    The page contains `sigma.js <https://www.sigmajs.org>`_ (WebGL) and `graphology
    <https://graphology.github.io>`_, which draw it.

    Args:
        graph (SampledGraph or tuple or scipy.sparse.csr_array or Mapping or Module): A
            graph on one set of nodes, or graphs on it by name, or a model, layer or
            sampler for its graphs of :obj:`data.x` in evaluation mode. Rows of a matrix
            are targets, as in :obj:`graph_` of the estimators.
        data (torch_geometric.data.Data, optional): The nodes: labels or targets
            :obj:`y`, also strings, features :obj:`x`, positions :obj:`pos`
            :math:`[n, 2]`. A label of -1 means unlabelled, except if the labels are -1
            and another one, or others are negative. (default: :obj:`None`)
        path (str or PathLike, optional): The file. (default: :obj:`"graph.html"`)
        prediction (torch.Tensor or Sequence or Mapping, optional): A predicted class or
            number of each node :math:`[n]`, or several by name. Strings are classes,
            and must be in :obj:`class_names` if given. (default: :obj:`None`)
        images (torch.Tensor, optional): An image of each node :math:`[n, h, w]` or
            :math:`[n, h, w, 3]`. Numbers other than bytes are rescaled, the smallest to
            black. (default: :obj:`None`)
        names (Sequence, optional): Names of nodes, else numbers. (default: :obj:`None`)
        class_names (Sequence, optional): Names of the classes. (default: :obj:`None`)
        feature_names (Sequence, optional): Names of features. (default: :obj:`None`)
        columns (Mapping or pandas.DataFrame, optional): The columns of a table to show
            instead of features: numbers, strings, or dates as
            :class:`numpy.datetime64`, with gaps. (default: :obj:`None`)
        title (str, optional): The title. (default: :obj:`"Learned graph"`)
        max_edges (int, optional): Heaviest edges to store, first those into new nodes.
            (default: :obj:`50_000`)
        max_features (int, optional): The number of features to show, those of largest
            variance, or columns, those with the most values. (default: :obj:`32`)
        seed (int, optional): The seed of the initial layout. (default: :obj:`0`)
        target_name (str, optional): The name of :obj:`data.y`.
            (default: :obj:`"target"`)
        new_mask (torch.Tensor, optional): A mask of nodes that were not in training,
            which get a ring :math:`[n]`. (default: :obj:`None`)

    Returns:
        pathlib.Path: The file.

    Raises:
        ImportError: If there are images and Pillow is not installed.
        OSError: If the file cannot be written, or its folder does not exist.
        TypeError: If an input has the wrong type or dtype.
        ValueError: If an input does not fit the graph, the graph has no nodes, or it
            leads from one set of nodes to another.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> data = Data(x=torch.rand(3, 4), y=torch.tensor([0, 0, 1]))
        >>> folder = getfixture('tmp_path')
        >>> graph = edge_index, torch.ones(3)
        >>> explore(graph, data=data, path=folder / 'graph.html').name
        'graph.html'
    """
    check_count(max_edges, 'max_edges')
    check_count(max_features, 'max_features', minimum=0)
    for name, text in {'title': title, 'target_name': target_name}.items():
        check_type(text, str, name, 'a str')
    data = Data() if data is None else data
    check_type(data, Data, 'data', 'a torch_geometric.data.Data')
    is_initial = isinstance(graph, torch.nn.Module) and is_untrained(graph)
    graphs, min_nodes = _read_graphs(graph, data.x)
    is_several = isinstance(prediction, Mapping)
    predictions = prediction if is_several else {'prediction': prediction}
    values = {
        str(name): read_values(value, name)
        for name, value in {'data.y': data.y, **predictions}.items()
        if value is not None
    }
    table = {} if columns is None else read_columns(columns)
    sizes = {'data.x': data.x, 'data.pos': data.pos, 'images': images, **values}
    sizes |= {f'columns[{name!r}]': value for name, (value, _) in table.items()}
    sizes['new_mask'] = new_mask
    num_nodes = _count_nodes(graphs, sizes, names, min_nodes)
    x = check_x(data.x)
    if columns is None:
        features = feature_colours(x, feature_names, max_features)
    else:
        features = column_colours(table, feature_names, max_features)
    colours = class_colours(values, class_names)
    if 'data.y' in values:
        colours[0]['name'] = target_name
    is_new = torch.zeros(num_nodes, dtype=torch.bool)
    if new_mask is not None:
        is_new = _read_mask(new_mask)
        colours += class_colours({'row': [_ROWS[i] for i in is_new.long()]}, _ROWS)
    position = initial_positions(data.pos, x, num_nodes, seed)
    x_axis, y_axis = map(rounded, position.unbind(dim=1))
    content: Json = {
        'nodes': {
            'names': as_names(names, num_nodes, 'names'),
            'x': x_axis,
            'y': y_axis,
            'new': is_new.nonzero().view(-1).tolist(),
        },
        'colours': [*colours, *(entry | {'isFeature': True} for entry in features)],
        'graphs': [
            _list_edges(name, value, max_edges, is_new)
            for name, value in graphs.items()
        ],
        'arrange': data.pos is None,
        'images': None if images is None else image_sprite(images.detach().cpu()),
    }
    notes = [_UNTRAINED]
    if not is_initial:
        notes = _homophily_notes(graphs, values.get('data.y'), target_name)
    with atomic_write(path) as draft:
        draft.write_text(make_page(title, notes, content), encoding='utf-8')
    return Path(path)


def _read_graphs(graph: Any, x: Any) -> tuple[dict[str, SampledGraph], int]:
    """Return graphs by name, and the rows of the largest matrix among them."""
    if isinstance(graph, torch.nn.Module):
        graph = _graphs_of(graph, x)
    values = graph if isinstance(graph, Mapping) else {'graph': graph}
    graphs = {str(name): _read_graph(value) for name, value in values.items()}
    if not 0 < len(values) == len(graphs):
        raise ValueError(
            f"'graph' must hold graphs with distinct names (got {list(values)})"
        )
    matrices = [value for value in values.values() if hasattr(value, 'tocoo')]
    return graphs, max((matrix.shape[0] for matrix in matrices), default=0)


def _graphs_of(model: torch.nn.Module, x: Any) -> dict[str, SampledGraph]:
    """Compute the graphs of a model, layer or sampler in evaluation mode, by name."""
    is_sampler = isinstance(model, GumbelKNNSampler)
    has_graphs = hasattr(model, 'graphs')
    has_graph = has_graphs or 'return_graph' in signature(model.forward).parameters
    is_of_one_set = getattr(model, 'num_transition_nodes', None) is None
    if not is_sampler and not (has_graph and is_of_one_set):
        raise TypeError(
            "'graph' must be a graph, a sampler, or a model or layer that learns a "
            f'graph of one set of nodes (got {type(model).__name__})'
        )
    check_type(x, Tensor, 'data.x', 'a torch.Tensor, of which a model has a graph')
    with evaluation(model) as evaluated:
        if is_sampler:
            return {'graph': evaluated(x)}
        graphs = (
            evaluated.graphs(x) if has_graphs else evaluated(x, return_graph=True)[1:]
        )
    return {f'layer {i}': graph for i, graph in enumerate(graphs, start=1)}


def _homophily_notes(
    graphs: dict[str, SampledGraph], y: Values | None, target_name: str
) -> list[str]:
    """Return a sentence on each graph that joins equal labels as by chance."""
    if not isinstance(y, Tensor) or y.dtype != torch.long or y.dim() != 1:
        return []
    notes = []
    is_labelled = y >= 0
    chance = chance_share(y[is_labelled])
    for name, (edge_index, weight) in graphs.items():
        is_loop = edge_index[0] == edge_index[1]
        is_compared = is_labelled[edge_index].all(dim=0) & ~is_loop
        share = same_label_share(edge_index[:, is_compared], weight[is_compared], y, y)
        if share <= 1.1 * chance and chance > 0:
            subject = f'graph of {name!r}' if len(graphs) > 1 else 'graph'
            notes.append(
                f'The {subject} joins nodes of equal {target_name} as by chance '
                f'(homophily {share:.2f}, by chance {chance:.2f}): it may be untrained.'
            )
    return notes


def _read_graph(graph: Any) -> SampledGraph:
    """Check a graph, or a sparse matrix of SciPy."""
    check_one_set(graph)
    if hasattr(graph, 'tocoo'):
        matrix = graph.tocoo()
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"'graph' must be square (got {list(matrix.shape)})")
        edges = torch.tensor(np.stack([matrix.col, matrix.row]), dtype=torch.long)
        graph = edges, torch.tensor(matrix.data, dtype=torch.double)
    edge_index, weight = check_graph(graph)
    return SampledGraph(edge_index.cpu(), weight.cpu())


def _read_mask(mask: Tensor) -> Tensor:
    if mask.dtype != torch.bool or mask.dim() != 1:
        raise ValueError(
            "'new_mask' must have shape [n] and hold booleans "
            f'(got {list(mask.shape)} of {mask.dtype})'
        )
    return mask.cpu()


def _count_nodes(
    graphs: dict[str, SampledGraph],
    inputs: dict[str, Any],
    names: Sequence[str] | None,
    min_nodes: int,
) -> int:
    """Count the nodes; raise unless all inputs agree."""
    for name, value in inputs.items():
        if value is None or isinstance(value, list):
            continue
        check_type(value, Tensor, name, 'a torch.Tensor')
        if value.dim() == 0:
            raise ValueError(f"'{name}' must have one row per node (got a number)")
    sizes = {name: len(value) for name, value in inputs.items() if value is not None}
    if names is not None:
        sizes['names'] = len(names)
    edges = torch.cat([graph.edge_index for graph in graphs.values()], dim=1)
    return agreed_count(edges, sizes, min_nodes)


def _list_edges(name: str, graph: SampledGraph, max_edges: int, is_new: Tensor) -> Json:
    """List the edges of a graph, only the heaviest if there are too many."""
    edge_index, weight = graph
    order = weight.argsort(descending=True, stable=True)
    # Of new nodes first: a page without their neighbours would explain nothing.
    is_into_new = is_new[edge_index[1, order]]
    order = torch.cat([order[is_into_new], order[~is_into_new]])[:max_edges]
    source, target = edge_index[:, order].tolist()
    return {
        'name': name,
        'source': source,
        'target': target,
        'weight': rounded(weight[order]),
        'total': weight.numel(),
    }
