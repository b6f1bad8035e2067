"""Write an HTML page to explore a graph in the browser."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_geometric_gsl._checks import check_count, check_graph, check_type
from torch_geometric_gsl._files import atomic_write
from torch_geometric_gsl.ops.graph_stats import chance_share, same_label_share
from torch_geometric_gsl.typing import SampledGraph
from torch_geometric_gsl.visualization._drawing import (
    agreed_count,
    principal_components,
)
from torch_geometric_gsl.visualization._page import (
    Json,
    Values,
    as_column,
    as_names,
    class_colours,
    image_sprite,
    make_page,
    number_colour,
    read_values,
    rounded,
)

#: A graph of this package, of PyTorch Geometric, or a sparse matrix of SciPy.
Graph = Any


def explore(
    graph: Graph | Mapping[str, Graph],
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
) -> Path:
    r"""Write a self-contained page to explore a graph offline.

    Open it in a browser. It opens with the two heaviest edges into each node; a slider
    shows more. The wheel zooms. Point at a node to see its neighbours with their
    weights, its label, its features and its image; click or tap to keep it selected.
    Search nodes by name, colour them by label, prediction or feature, and hide edges
    below a weight. The page prints the homophily of the edges shown (the correlation if
    the colour is a number), has a dark mode, and compares two graphs side by side.

    ForceAtlas2 places the nodes by the edges shown, unless :obj:`data.pos` is given.
    The page contains `sigma.js <https://www.sigmajs.org>`_ (WebGL) and `graphology
    <https://graphology.github.io>`_, which draw it.

    Args:
        graph (SampledGraph or tuple or scipy.sparse.csr_array or Mapping): A graph on
            one set of nodes, or graphs on it by name. Rows of a matrix are targets, as
            in :obj:`graph_` of the estimators.
        data (torch_geometric.data.Data, optional): The nodes: labels or targets
            :obj:`y`, also strings, features :obj:`x`, positions :obj:`pos`
            :math:`[n, 2]`. A label of -1 means unlabelled, except if the labels are -1
            and another one, or others are negative. (default: :obj:`None`)
        path (str or PathLike, optional): The file. (default: :obj:`"graph.html"`)
        prediction (torch.Tensor or Sequence, optional): A predicted class or number of
            each node :math:`[n]`. Strings are classes, and must be in
            :obj:`class_names` if given. (default: :obj:`None`)
        images (torch.Tensor, optional): An image of each node :math:`[n, h, w]` or
            :math:`[n, h, w, 3]`. Numbers other than bytes are rescaled, the smallest to
            black. (default: :obj:`None`)
        names (Sequence, optional): Names of nodes, else numbers. (default: :obj:`None`)
        class_names (Sequence, optional): Names of the classes. (default: :obj:`None`)
        feature_names (Sequence, optional): Names of features. (default: :obj:`None`)
        columns (Mapping or pandas.DataFrame, optional): The columns of a table to show
            instead of features: numbers, strings, or dates as
            :class:`numpy.datetime64`, with gaps. (default: :obj:`None`)
        title (str, optional): The title of the page, which adds the homophily of a
            graph that joins equal labels as by chance. (default:
            :obj:`"Learned graph"`)
        max_edges (int, optional): Heaviest edges to store. (default: :obj:`50_000`)
        max_features (int, optional): The number of features to show, those of largest
            variance, or columns, those with the most values. (default: :obj:`32`)
        seed (int, optional): The seed of the initial layout. (default: :obj:`0`)

    Returns:
        pathlib.Path: The file.

    Raises:
        ImportError: If there are images and Pillow is not installed.
        OSError: If the file cannot be written, or its folder does not exist.
        TypeError: If an input has the wrong type or dtype.
        ValueError: If an input does not fit the graph, or the graph has no nodes.

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
    check_type(title, str, 'title', 'a str')
    data = Data() if data is None else data
    check_type(data, Data, 'data', 'a torch_geometric.data.Data')
    graphs_by_name = graph if isinstance(graph, Mapping) else {'graph': graph}
    graphs = {str(name): _read_graph(value) for name, value in graphs_by_name.items()}
    if not 0 < len(graphs_by_name) == len(graphs):
        raise ValueError(
            f"'graph' must hold graphs with distinct names (got {list(graphs_by_name)})"
        )
    values = {
        name: read_values(value, name)
        for name, value in {'data.y': data.y, 'prediction': prediction}.items()
        if value is not None
    }
    table = {} if columns is None else _read_columns(columns)
    sizes = {'data.x': data.x, 'data.pos': data.pos, 'images': images, **values}
    sizes |= {f'columns[{name!r}]': value for name, (value, _) in table.items()}
    matrices = [value for value in graphs_by_name.values() if hasattr(value, 'tocoo')]
    min_nodes = max((matrix.shape[0] for matrix in matrices), default=0)
    num_nodes = _count_nodes(graphs, sizes, names, min_nodes)
    x = _features(data.x)
    if columns is None:
        features = _feature_colours(x, feature_names, max_features)
    else:
        features = _column_colours(table, feature_names, max_features)
    position = _initial_positions(data.pos, x, num_nodes, seed)
    x_axis, y_axis = map(rounded, position.unbind(dim=1))
    names = as_names(names, num_nodes, 'names')
    content: Json = {
        'nodes': {'names': names, 'x': x_axis, 'y': y_axis},
        'colours': [
            *class_colours(values, class_names),
            *(entry | {'isFeature': True} for entry in features),
        ],
        'graphs': [
            _list_edges(name, value, max_edges) for name, value in graphs.items()
        ],
        'arrange': data.pos is None,
        'images': None if images is None else image_sprite(images.detach().cpu()),
    }
    with atomic_write(path) as draft:
        page = make_page(title + _homophily_note(graphs, values.get('data.y')), content)
        draft.write_text(page, encoding='utf-8')
    return Path(path)


def _homophily_note(graphs: dict[str, SampledGraph], y: Values | None) -> str:
    """Return what the title adds if a graph joins equal labels as by chance."""
    if not isinstance(y, Tensor) or y.dtype != torch.long or y.dim() != 1:
        return ''
    note = ''
    is_labelled = y >= 0
    chance = chance_share(y[is_labelled])
    for name, (edge_index, weight) in graphs.items():
        is_loop = edge_index[0] == edge_index[1]
        is_compared = is_labelled[edge_index].all(dim=0) & ~is_loop
        share = same_label_share(edge_index[:, is_compared], weight[is_compared], y, y)
        if share <= 1.1 * chance and chance > 0:
            suffix = f' of {name}' if len(graphs) > 1 else ''
            note += (
                f' (homophily{suffix} {share:.2f}, by chance {chance:.2f}: untrained?)'
            )
    return note


def _read_graph(graph: Any) -> SampledGraph:
    """Check a graph, or a sparse matrix of SciPy."""
    if hasattr(graph, 'tocoo'):
        matrix = graph.tocoo()
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"'graph' must be square (got {list(matrix.shape)})")
        edges = torch.tensor(np.stack([matrix.col, matrix.row]), dtype=torch.long)
        graph = edges, torch.tensor(matrix.data, dtype=torch.double)
    edge_index, weight = check_graph(graph)
    return SampledGraph(edge_index.cpu(), weight.cpu())


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


def _features(x: Tensor | None) -> Tensor | None:
    if x is None:
        return None
    if x.dim() != 2 or x.is_complex():
        raise ValueError(
            "'data.x' must have shape [n, d] and hold real numbers "
            f'(got {list(x.shape)} of {x.dtype})'
        )
    return x.detach().cpu()


def _read_columns(columns: Any) -> dict[str, tuple[Values, bool]]:
    """Read the columns of a table by name, each with a flag of dates, in seconds."""
    if not hasattr(columns, 'items'):
        raise TypeError(
            "'columns' must be a mapping or a pandas.DataFrame "
            f'(got {type(columns).__name__})'
        )
    table = {}
    for name, column in columns.items():
        dtype_kind = getattr(getattr(column, 'dtype', None), 'kind', '')
        if dtype_kind in ('m', 'M'):  # NaT becomes NaN.
            times = np.asarray(column, dtype=f'{dtype_kind}8[us]')
            seconds = (times - np.array(0, times.dtype)) / np.timedelta64(1, 's')
            column = torch.from_numpy(seconds)
        elif dtype_kind == 'b':
            texts = np.asarray(column).astype(str)
            column = [text if text in ('True', 'False') else None for text in texts]
        label = f'columns[{name!r}]'
        if str(name) in table:
            raise ValueError(f"'columns' must have distinct names (got {name!r} twice)")
        values = as_column(read_values(column, label), label)
        table[str(name)] = values, dtype_kind == 'M'
    return table


def _initial_positions(
    pos: Tensor | None, x: Tensor | None, num_nodes: int, seed: int
) -> Tensor:
    """Return the given or initial positions of the nodes."""
    if pos is not None:
        if pos.dim() != 2 or pos.size(1) != 2 or not bool(pos.isfinite().all()):
            raise ValueError(
                "'data.pos' must be finite and have shape [n, 2] "
                f'(got {list(pos.shape)})'
            )
        return pos.detach().cpu()
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(num_nodes, 2, generator=generator, dtype=torch.double)
    if x is None or x.layout != torch.strided or not bool(x.isfinite().all()):
        return noise
    # Equal rows need distinct positions: no force would separate them.
    spread = principal_components(x.double())
    return 0.01 * noise + spread / spread.std().clamp_min(1e-9)


def _feature_colours(
    x: Tensor | None, feature_names: Sequence[str] | None, max_features: int
) -> list[Json]:
    """List the features of largest variance, in order."""
    if x is None or not max_features:
        return []
    names = [f'feature {i}' for i in range(x.size(1))]
    if feature_names is not None:
        names = as_names(feature_names, x.size(1), 'feature_names')
    indices = _largest(_spread(x), max_features)
    rows = x if x.layout == torch.strided else x.to_sparse_coo()
    columns = rows.index_select(1, indices).to_dense()
    pairs = zip(indices.tolist(), columns.t(), strict=True)
    return [number_colour(names[i], column) for i, column in pairs]


def _column_colours(
    columns: dict[str, tuple[Values, bool]],
    names: Sequence[str] | None,
    max_columns: int,
) -> list[Json]:
    """List the columns of most values, in order."""
    titles = as_names(
        [*columns] if names is None else names, len(columns), 'feature_names'
    )
    counts = [
        len(
            value[value.isfinite()].unique()
            if isinstance(value, Tensor)
            else {*value} - {None}
        )
        for value, _ in columns.values()
    ]
    indices = {*_largest(torch.tensor(counts, dtype=torch.long), max_columns).tolist()}
    return [
        number_colour(name, value.double(), is_date)
        if isinstance(value, Tensor)
        else class_colours({name: value}, None)[0]
        for i, (name, (value, is_date)) in enumerate(
            zip(titles, columns.values(), strict=False)
        )
        if i in indices
    ]


def _largest(values: Tensor, size: int) -> Tensor:
    """Return the positions of the largest values, in ascending order."""
    return values.argsort(descending=True, stable=True)[:size].sort().values


def _spread(x: Tensor) -> Tensor:
    """Compute the variance of the finite numbers of each column."""
    if x.layout == torch.strided:
        return x.double().nan_to_num(0, 0, 0).var(dim=0, unbiased=False)
    entries = x.to_sparse_coo().coalesce()
    value = entries.values().double().nan_to_num(0, 0, 0)
    sums = value.new_zeros(2, x.size(1))
    sums.index_add_(1, entries.indices()[1], torch.stack([value, value.square()]))
    sums /= x.size(0)
    variance: Tensor = sums[1] - sums[0].square()
    return variance


def _list_edges(name: str, graph: SampledGraph, max_edges: int) -> Json:
    """List the edges of a graph, only the heaviest if there are too many."""
    edge_index, weight = graph
    order = weight.argsort(descending=True, stable=True)[:max_edges]
    source, target = edge_index[:, order].tolist()
    return {
        'name': name,
        'source': source,
        'target': target,
        'weight': rounded(weight[order]),
        'total': weight.numel(),
    }
