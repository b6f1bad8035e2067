"""Check arguments and raise the package's errors.

Checks of values (finite features, sorted batches) are immediate on a CPU and
asynchronous on CUDA, where reading a value back would stall the device; under
``torch.compile`` they are skipped, because they would break the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import partial
from numbers import Integral, Real
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Proxy
from torch_geometric.data import HeteroData

from torch_geometric_gsl.typing import Features, SampledGraph, plain_edges

_HETERO_TRACER = 'torch_geometric.nn.fx'


def check_type(value: object, types: Any, name: str, expected: str) -> None:
    """Raise unless a value is of a type, or one of several.

    :obj:`expected` describes it.
    """
    if not isinstance(value, types):
        raise TypeError(f"'{name}' must be {expected} (got {type(value).__name__})")


def check_option(value: object, options: Iterable[object], name: str) -> None:
    """Raise unless a value is one of the named options."""
    if value not in (names := list(options)):
        hint = suggest(value, names)
        raise ValueError(f"'{name}' must be one of {names} (got {value!r}){hint}")


def suggest(value: object, names: Iterable[object]) -> str:
    """Return the end of an error text: the name that is spelt alike, if any."""
    matches = get_close_matches(str(value), map(str, names), 1, cutoff=0.75)
    return f': did you mean {matches[0]!r}?' if matches else ''


def check_flag(value: object, name: str) -> None:
    """Raise unless a value is a boolean: the string 'no' would count as true."""
    if not isinstance(value, bool):
        raise TypeError(f"'{name}' must be a bool (got {value!r})")


def check_absent(value: object, name: str, where: str) -> None:
    """Raise if an argument is given where it is not supported."""
    if value is not None:
        raise ValueError(
            f"'{name}' is not supported {where} (got a {type(value).__name__})"
        )


def check_count(value: object, name: str, minimum: int = 1) -> None:
    """Raise unless a value is an integer of at least :obj:`minimum`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"'{name}' must be an integer (got {type(value).__name__})")
    if value < minimum:
        raise ValueError(f"'{name}' must be at least {minimum} (got {value})")


def check_seed(seed: int) -> None:
    """Raise unless a number can seed a generator."""
    check_count(seed, 'seed', minimum=0)
    if seed >= 2**64:
        raise ValueError(f"'seed' must be less than 2**64 (got {seed})")


def check_edge_types(edge_types: Any, name: str) -> list[Any]:
    """Return a list of distinct edge types, at least one."""
    if isinstance(edge_types, str) or not isinstance(edge_types, Iterable):
        type_name = type(edge_types).__name__
        raise TypeError(f"'{name}' must be a list of edge types (got {type_name})")
    types = list(edge_types)
    if not types:
        raise ValueError(f"'{name}' must hold at least one edge type (got none)")
    for edge_type in types:
        is_triple = isinstance(edge_type, tuple) and len(edge_type) == 3
        if not is_triple or not all(isinstance(s, str) and s for s in edge_type):
            raise ValueError(
                f"'{name}' must hold edge types (source, name, target) "
                f'(got {edge_type!r})'
            )
        if types.count(edge_type) > 1:
            raise ValueError(f"'{name}' must be distinct (got {edge_type} twice)")
    return types


def check_device(device: Any) -> torch.device:
    """Return a device; raise unless PyTorch can use it."""
    try:
        return torch.empty(0, device=device).device
    except (AssertionError, RuntimeError, TypeError) as error:
        raise ValueError(
            f"'device' must be a PyTorch device (got {device!r}): {error}"
        ) from error


def check_number(value: object, name: str, expected: str = 'a number') -> None:
    """Raise unless a value is a finite number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"'{name}' must be {expected} (got {type(value).__name__})")
    if not abs(float(value)) < float('inf'):
        raise ValueError(f"'{name}' must be finite (got {value})")


def check_positive(
    value: Any, name: str, low: float = 0.0, high: float = float('inf')
) -> None:
    """Raise unless a value is positive, finite and within limits."""
    check_number(value, name, 'a positive number')
    if value <= 0:
        raise ValueError(f"'{name}' must be positive and finite (got {value})")
    if not low <= value <= high:
        raise ValueError(
            f"'{name}' must be between {low:g} and {high:g} (got {value}): other "
            f'values overflow float32'
        )


def check_probability(value: Any, name: str) -> None:
    """Raise unless a value lies in [0, 1)."""
    check_number(value, name)
    if not 0 <= value < 1:
        raise ValueError(f"'{name}' must lie in [0, 1) (got {value})")


def at_least(minimum: int, value: float, name: str) -> float:
    """Return a finite number of at least :obj:`minimum`."""
    check_number(value, name)
    if value < minimum:
        raise ValueError(f"'{name}' must be at least {minimum} (got {value})")
    return value


def check_value(
    condition: Tensor, message: str, got: Callable[[], object] | None = None
) -> None:
    """Raise a :class:`ValueError` unless the boolean scalar :obj:`condition`.

    On a CPU, where reading a value is free, the message adds :obj:`got`.
    """
    if torch.compiler.is_compiling() or condition.is_meta:
        return
    if condition.is_cuda:
        torch._assert_async(condition, message)
    elif not bool(condition):
        raise ValueError(message if got is None else f'{message} (got {got()})')


def check_finite(x: Tensor, name: str) -> None:
    """Raise if a tensor holds NaN or infinite values."""
    if torch.compiler.is_compiling() or x.is_meta:
        return
    values = (x.values() if x.layout != torch.strided else x).detach()
    # NaN and infinities survive a sum: search only where it is not finite.
    if x.is_cuda or not bool(values.sum().isfinite()):
        finite = values.isfinite()
        check_value(
            finite.all(),
            f"'{name}' contains NaN or infinite values",
            got=lambda: f'{int((~finite).sum())} of {finite.numel()}',
        )


def check_one_type(x: object) -> None:
    """Raise for a dict of features by node type, also where PyG traces a module."""
    is_traced = isinstance(x, Proxy) and type(x.tracer).__module__ == _HETERO_TRACER
    if is_traced or isinstance(x, dict | HeteroData):
        description = "'to_hetero'" if is_traced else f'a {type(x).__name__}'
        raise TypeError(
            f"'x' must be a torch.Tensor (got {description}): this module learns a "
            f"graph on nodes of one type. Use 'HeteroLatentGraphConv' for several "
            f"types, or 'data.to_homogeneous()' for one graph over all of them"
        )


def check_features(
    x: Any, name: str = 'x', width: int | None = None, *, is_finite: bool = True
) -> None:
    """Raise unless :obj:`x` is a finite floating-point matrix of the given width."""
    if not isinstance(x, Tensor):
        check_one_type(x)
        data = ', such as data.x' if hasattr(x, 'num_nodes') else ''
        check_type(x, Tensor, name, f'a torch.Tensor{data}')
    if x.layout not in (torch.strided, torch.sparse_csr):
        raise ValueError(f"'{name}' must be dense or sparse CSR (got {x.layout})")
    if x.layout != torch.strided and getattr(torch.compiler, 'is_exporting', bool)():
        raise ValueError(f"'{name}' must be dense for 'torch.export' (got {x.layout})")
    if x.dim() != 2:
        raise ValueError(
            f"'{name}' must have shape [num_nodes, channels] (got {list(x.shape)})"
        )
    if not x.is_floating_point():
        raise TypeError(f"'{name}' must be floating-point (got {x.dtype})")
    if width is not None and width != -1 and x.size(1) != width:
        raise ValueError(f"'{name}' must have {width} channels (got {x.size(1)})")
    if is_finite:
        check_finite(x, name)


def check_matrix(x: Any, width: int | None = None) -> None:
    """Raise unless :obj:`x` is a floating-point matrix of the given width."""
    check_features(x, width=width, is_finite=False)


class Ends(NamedTuple):
    """Values of sources and of targets: those of a pair, or twice that of one set."""

    src: Any
    dst: Any
    is_pair: bool

    @classmethod
    def of(cls, value: Any, name: str = 'x') -> Ends:
        """Return the ends of a value, or of a pair of values."""
        if isinstance(value, Ends):
            return value
        if not isinstance(value, tuple | list):
            return cls(value, value, is_pair=False)
        if len(value) != 2:
            raise ValueError(
                f"'{name}' must be a tensor or a pair ({name}_src, {name}_dst) "
                f'(got {len(value)} tensors)'
            )
        return cls(value[0], value[1], is_pair=True)

    @property
    def features(self) -> Features:
        """Return what a user would pass: a pair, or one tensor."""
        return (self.src, self.dst) if self.is_pair else self.src

    def like(self, value: Any, name: str) -> Ends:
        """Return the ends of another argument, a pair if this is one, or of None."""
        ends = Ends.of(value, name)
        if value is not None and ends.is_pair != self.is_pair:
            what = 'a pair' if self.is_pair else 'a tensor'
            raise TypeError(
                f"'{name}' must be {what} like 'x' (got a {type(value).__name__})"
            )
        return ends


def check_two(value: Any, name: str, expected: str) -> None:
    """Raise unless a value is a pair; :obj:`expected` describes it."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(f"'{name}' must be {expected} (got {type(value).__name__})")


def check_ends(x: Features | Ends, width: int | None = None) -> Ends:
    """Check features of one set of nodes, or of sources and targets.

    Those that a layer passes on as :class:`Ends` are known to be finite.
    """
    ends = Ends.of(x)
    src, dst, is_pair = ends
    is_finite = not isinstance(x, Ends)
    check_features(src, 'x_src' if is_pair else 'x', width, is_finite=is_finite)
    if not is_pair:
        return ends
    check_features(dst, 'x_dst', width, is_finite=is_finite)
    for attribute, of_src, of_dst in (
        ('dtype', src.dtype, dst.dtype),
        ('device', src.device, dst.device),
        ('width', src.size(1), dst.size(1)),
    ):
        if of_src != of_dst:
            raise ValueError(
                f"'x_src' and 'x_dst' must share one {attribute} "
                f'(got {of_src} and {of_dst})'
            )
    return ends


def check_compared(z: Any, width: int, nodes: Tensor) -> None:
    """Raise unless :obj:`z` has one row per node, of the given width.

    The features of the nodes themselves are known to be finite.
    """
    check_features(z, 'z', width, is_finite=z is not nodes)
    _check_size(z, nodes.size(0), 'z')


def check_parameter_match(x: Tensor, parameter: Tensor | None, name: str = 'x') -> None:
    """Raise unless features and parameters share dtype and device."""
    if parameter is None:
        return
    if x.device != parameter.device:
        raise ValueError(
            f"'{name}' is on {x.device} but the parameters are on {parameter.device}"
        )
    if x.dtype == parameter.dtype:
        return
    # Autocast does not cast double precision.
    is_double = torch.float64 in (x.dtype, parameter.dtype)
    if is_double or not torch.is_autocast_enabled(x.device.type):
        raise TypeError(
            f"'{name}' has {x.dtype} but the parameters have {parameter.dtype}: "
            f"pass '{name}.to({parameter.dtype})'"
        )


def check_num_nodes(x: Tensor, num_nodes: int) -> None:
    """Raise unless there is one row of features per node."""
    if x.size(0) != num_nodes:
        raise ValueError(
            f"'x' must have num_nodes={num_nodes} rows (got {x.size(0)}): this model "
            f'has weights for each node of one data set'
        )


def check_index(index: Any, name: str, shape: str, dim: int, like: Tensor) -> None:
    """Raise unless :obj:`index` is a long tensor of a shape on :obj:`like`'s device."""
    check_type(index, Tensor, name, 'a torch.Tensor')
    if index.dtype != torch.long:
        raise TypeError(f"'{name}' must have dtype torch.int64 (got {index.dtype})")
    if index.dim() != dim or (dim == 2 and index.size(0) != 2):
        raise ValueError(f"'{name}' must have shape {shape} (got {list(index.shape)})")
    _check_device(index, like.device, name)


def _check_device(value: Tensor, device: torch.device, name: str) -> None:
    if value.device != device:
        raise ValueError(f"'{name}' is on {value.device} but 'x' is on {device}")


def _check_size(value: Tensor, size: int, name: str, entry: str = 'row') -> None:
    if value.size(0) != size:
        raise ValueError(
            f"'{name}' must have one {entry} per node "
            f'(got {value.size(0)} for {size} nodes)'
        )


def check_edge_index(
    edge_index: Any, x_src: Tensor, x_dst: Tensor, name: str = 'edge_index'
) -> None:
    """Raise unless all edges run between existing nodes."""
    check_index(edge_index, name, '[2, num_edges]', 2, x_src)
    if edge_index.numel() == 0:
        return
    for row, size, end in ((0, x_src.size(0), 'source'), (1, x_dst.size(0), 'target')):
        low, high = edge_index[row].aminmax()
        check_value(
            (low >= 0) & (high < size),
            f"'{name}' has {end}s outside 0..{size - 1}"
            if size
            else f"'{name}' must be empty where there are no {end}s",
            got=partial('{}..{}'.format, low, high),
        )


def check_edge_weight(
    edge_weight: Any,
    edge_index: Any,
    like: Tensor,
) -> None:
    """Raise unless each edge has a finite weight that is not negative."""
    name = 'edge_weight'
    if edge_index is None:
        raise ValueError(f"'{name}' needs 'edge_index' (got None)")
    if not isinstance(edge_weight, Tensor) or not edge_weight.is_floating_point():
        raise TypeError(
            f"'{name}' must be a floating-point tensor (got {_kind(edge_weight)})"
        )
    shape = (edge_index.size(1),)
    if edge_weight.shape != shape:
        raise ValueError(
            f"'{name}' must have shape {list(shape)} (got {list(edge_weight.shape)})"
        )
    _check_device(edge_weight, like.device, name)
    check_finite(edge_weight, name)
    is_valid = (edge_weight >= 0).all()
    check_value(is_valid, f"'{name}' must not be negative", got=edge_weight.min)


def check_weighted_edges(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    x_src: Tensor,
    x_dst: Tensor,
    name: str = 'edge_index',
) -> SampledGraph:
    """Return valid edges with weights of the dtype of features, by default ones."""
    check_edge_index(edge_index, x_src, x_dst, name)
    edge_index = plain_edges(edge_index)
    if edge_weight is None:
        edge_weight = torch.ones(edge_index.size(1), device=x_src.device)
    check_edge_weight(edge_weight, edge_index, x_src)
    return SampledGraph(edge_index, edge_weight.to(x_src.dtype))


def check_graph(graph: Any) -> SampledGraph:
    """Return a valid weighted graph, detached from its gradient."""
    expected = 'a SampledGraph or a pair (edge_index, edge_weight), as of a Data object'
    check_two(graph, 'graph', expected)
    edge_index, weight = graph
    check_index(edge_index, 'edge_index', '[2, num_edges]', 2, like=edge_index)
    check_edge_weight(weight, edge_index, like=edge_index)
    is_valid = (edge_index >= 0).all()
    check_value(is_valid, "'edge_index' must not be negative", got=edge_index.min)
    return SampledGraph(edge_index, weight.detach())


def check_node_labels(y: Any, graph: SampledGraph) -> tuple[Tensor, Tensor]:
    """Return labels of sources and of targets; one set has the same tensor twice."""
    y_src, y_dst, _ = Ends.of(y, 'y')
    pairs = zip((y_src, y_dst), graph.edge_index, ('source', 'target'), strict=True)
    for labels, index, end in pairs:
        if not isinstance(labels, Tensor) or labels.is_floating_point():
            raise TypeError(
                f"'y' must be an integer torch.Tensor (got {_kind(labels)})"
            )
        size = list(labels.shape)
        if len(size) != 1:
            raise ValueError(f"'y' must have shape [num_nodes] (got {size})")
        if index.numel() and int(index.max()) >= size[0]:
            raise ValueError(
                f"'y' must have one label per node (got {size[0]}, but 'graph' has "
                f'{end} {int(index.max())})'
            )
    return y_src, y_dst


def _kind(value: object) -> object:
    return value.dtype if isinstance(value, Tensor) else type(value).__name__


def check_batch(batch: Any, x: Tensor, name: str = 'batch') -> None:
    """Raise unless :obj:`batch` is a sorted vector of graph ids, one per node."""
    check_index(batch, name, '[num_nodes]', 1, x)
    _check_size(batch, x.size(0), name, 'entry')
    is_valid = (batch >= 0).all()
    check_value(is_valid, f"'{name}' must not be negative", got=batch.min)
    drops = batch[1:] < batch[:-1]
    check_value(
        ~drops.any(),
        f"'{name}' must be sorted",
        got=lambda: f'{int(batch[1:][drops][0])} after {int(batch[:-1][drops][0])}',
    )


def check_graph_ids(batch: Any, nodes: Ends) -> tuple[Tensor, Tensor]:
    """Return the numbers of the graphs of sources and targets, without gaps."""
    src, dst, is_pair = nodes.like(batch, 'batch')
    if not is_pair:
        check_batch(src, nodes.src)
        # Ids are labels: their maximum does not give the number of graphs.
        _, ids = torch.unique_consecutive(src, return_inverse=True)
        return ids, ids
    check_batch(src, nodes.src, 'batch_src')
    check_batch(dst, nodes.dst, 'batch_dst')
    _, ids = torch.cat([src, dst]).unique(return_inverse=True)
    src_ids, dst_ids = ids.split([src.numel(), dst.numel()])
    return src_ids, dst_ids


def check_vector(values: Any, name: str, x: Tensor) -> None:
    """Raise unless there is a vector of one number per node."""
    check_type(values, Tensor, name, 'a torch.Tensor')
    if values.dim() != 1:
        raise ValueError(
            f"'{name}' must have shape [num_nodes] (got {list(values.shape)})"
        )
    _check_size(values, x.size(0), name, 'entry')
    _check_device(values, x.device, name)


def check_one_graph(edge_index: Tensor, batch: Any) -> None:
    """Raise if an edge joins two graphs of a checked batch, of nodes or of a pair."""
    src_graph, dst_graph, _ = Ends.of(batch, 'batch')
    is_crossing = src_graph[edge_index[0]] != dst_graph[edge_index[1]]
    check_value(
        ~is_crossing.any(),
        "'edge_index' joins two graphs of 'batch'",
        got=lambda: f'edge {edge_index[:, is_crossing][:, 0].tolist()}',
    )


def check_mask(mask: Tensor) -> None:
    """Raise if a mask, or a vector of indices, selects no node."""
    message = "'mask' must select at least one node"
    if mask.numel() == 0:
        raise ValueError(f'{message} (got none)')
    if mask.dtype == torch.bool:
        check_value(mask.any(), message, got=lambda: 'none')


def check_candidate_count(k: int, available: int, where: str = '') -> None:
    """Raise if there are fewer candidates than neighbours to sample."""
    if k > available:
        raise ValueError(
            f"'k' must not exceed the number of candidates{where} "
            f'(got k={k} for {available} candidates)'
        )


def check_generator(generator: Any, device: torch.device) -> None:
    """Raise unless :obj:`generator` is a generator for the given type of device."""
    if generator is None:
        return
    check_type(generator, torch.Generator, 'generator', 'a torch.Generator')
    if generator.device.type != device.type:
        raise ValueError(
            f"'generator' is on {generator.device} but the features are on {device}"
        )


def check_messages(h: Any, num_sources: int, device: torch.device) -> None:
    """Raise unless there is one row of messages per source."""
    if not isinstance(h, Tensor):
        raise TypeError(f"'h' must be a torch.Tensor (got {type(h).__name__})")
    if h.dim() != 2 or h.size(0) != num_sources:
        raise ValueError(
            f"'h' must have shape [{num_sources}, channels] (got {list(h.shape)})"
        )
    if not h.is_floating_point():
        raise TypeError(f"'h' must be floating-point (got {h.dtype})")
    if h.device != device:
        raise ValueError(f"'h' is on {h.device} but 'x' is on {device}")
