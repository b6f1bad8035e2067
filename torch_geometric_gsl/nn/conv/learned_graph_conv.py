"""Base classes of layers that learn their graph, and of those with anchors."""

from __future__ import annotations

import random
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import reset, zeros
from typing_extensions import Unpack

from torch_geometric_gsl._checks import (
    Ends,
    check_absent,
    check_count,
    check_features,
    check_finite,
    check_flag,
    check_generator,
    check_matrix,
    check_option,
    check_parameter_match,
    check_type,
)
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.nn.embeddings import LabelEmbedding
from torch_geometric_gsl.nn.linear import apply_linear, plain_linear
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.sampler.options import (
    SamplerOptions,
    check_options,
)
from torch_geometric_gsl.nn.shared_module import SharedModule, keep_state, share_module
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops.runtime import check_not_batched
from torch_geometric_gsl.ops.sparse_rows import dense_rows
from torch_geometric_gsl.typing import Features, SampledGraph

#: Size of each sample: one for all, or one for sources and one for targets.
Channels: TypeAlias = int | tuple[int, int]
#: The forms of transition nodes.
TRANSITIONS = ('projected', 'free', 'anchors')


def compared_width(z_channels: int | None, in_channels: Channels) -> int | None:
    """Return the width of compared rows; -1 is the width of the input."""
    if z_channels != -1:
        if z_channels is not None:
            check_count(z_channels, 'z_channels')
        return z_channels
    widths = {*in_channels} if isinstance(in_channels, tuple) else {in_channels}
    if -1 in widths or len(widths) > 1:
        raise ValueError(
            f"'in_channels' must be one known width if z_channels=-1 "
            f'(got {in_channels})'
        )
    return widths.pop()


def check_serves_as_z(x: Any, z_channels: int) -> None:
    """Raise unless features are as wide as the compared rows that they replace."""
    for rows in Ends.of(x)[:2]:
        if isinstance(rows, Tensor) and rows.size(-1) != z_channels:
            raise ValueError(
                f"'z' is required unless 'x' has "
                f'z_channels={z_channels} channels (got {rows.size(-1)})'
            )


def rank_options(shard: RowShard, x: Tensor) -> dict[str, Any]:
    """Return the options of a sampler for the rows of one of several processes."""
    check_type(shard, RowShard, 'shard', 'a RowShard')
    shard.check(x)
    return {'rows': shard.rows, 'gather': shard.gather}


def check_transition(
    transition: str, num_nodes: int | None, num_transition_nodes: int | None
) -> None:
    """Raise unless the form of transition nodes is known and has its sizes."""
    check_option(transition, TRANSITIONS, 'transition')
    if transition == 'projected':
        if (num_transition_nodes is None) != (num_nodes is None):
            raise ValueError(
                f"'num_transition_nodes' and 'num_nodes' must be given together (got "
                f"{num_transition_nodes} and {num_nodes}), unless 'transition' is "
                f"'free' or 'anchors'"
            )
        if num_nodes is not None:
            check_count(num_nodes, 'num_nodes')
    else:
        context = f'with transition={transition!r}, which takes any number of rows'
        check_absent(num_nodes, 'num_nodes', context)
        if num_transition_nodes is None:
            raise ValueError(
                f"'num_transition_nodes' is required with transition={transition!r} "
                f'(got None)'
            )


class LearnedGraphConv(torch.nn.Module):
    """Base class of the layers that sum messages over a learned graph."""

    sampler: GumbelKNNSampler = SharedModule()  # type: ignore[assignment]

    #: Whether sources and targets may have different widths.
    _has_two_widths = False

    def __init__(
        self,
        in_channels: Channels,
        out_channels: int,
        similarity: str | Similarity = 'mixture',
        k: int = 5,
        tau: float = 0.5,
        *,
        similarity_kwargs: dict[str, Any] | None = None,
        root_weight: bool = True,
        bias: bool = True,
        z_channels: int | None = None,
        label_channels: int | None = None,
        **kwargs: Unpack[SamplerOptions],
    ) -> None:
        super().__init__()
        check_options(type(self), kwargs, SamplerOptions.__annotations__)
        widths = Ends(in_channels, in_channels, is_pair=False)
        if self._has_two_widths and isinstance(in_channels, tuple):
            widths = Ends.of(in_channels)
        for width in widths[:2]:
            if width != -1:  # Else it is unknown until the first call.
                check_count(width, 'in_channels')
        check_count(out_channels, 'out_channels')
        self.in_channels: Any = in_channels
        self.out_channels = out_channels
        self.z_channels = z_channels = compared_width(z_channels, in_channels)
        self.lin = plain_linear(widths.src, out_channels)
        self.lin_dst: Linear | None = None
        if widths.is_pair and z_channels is None:
            self.lin_dst = plain_linear(widths.dst, out_channels)
        check_flag(root_weight, 'root_weight')
        check_flag(bias, 'bias')
        self.root_weight = root_weight
        self.lin_root = plain_linear(widths.dst, out_channels) if root_weight else None
        self.bias: torch.nn.Parameter | None = None
        if bias:
            self.bias = torch.nn.Parameter(torch.empty(out_channels))
        self.label: LabelEmbedding | None = None
        if label_channels is not None:
            self.label = LabelEmbedding(label_channels, out_channels)
        width = z_channels or out_channels
        is_input = z_channels is not None and z_channels == in_channels
        # The cosine is of little use with two features, and of none with one.
        is_default = similarity == 'mixture' and not similarity_kwargs
        if is_default and width <= 1 + is_input:
            similarity = 'distance'
        compared = resolve_similarity(similarity, width, **(similarity_kwargs or {}))
        self.sampler = GumbelKNNSampler(compared, k, tau, **kwargs)
        with keep_state(similarity):
            # Not a subclass's reset: its parameters do not exist yet.
            LearnedGraphConv.reset_parameters(self)

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        # A sampler that another layer registers keeps its state.
        sampler = self._modules.get('sampler')
        for module in (self.lin, self.lin_root, self.lin_dst, sampler, self.label):
            reset(module)
        zeros(self.bias)

    def _add_root(self, x: Tensor, out: Tensor) -> Tensor:
        if self.lin_root is not None:
            out = out + apply_linear(self.lin_root, x)
        return out if self.bias is None else out + self.bias

    def _sizes(self) -> str:
        return f'{self.in_channels}, {self.out_channels}'

    def share_sampler(self, other: Any) -> None:
        r"""Use the sampler of another layer that compares rows of the same width.

        The other layer alone registers it: its parameters, its mode and its device are
        those of the other layer. :obj:`conv.sampler = copy.deepcopy(conv.sampler)`
        gives this layer its own.
        """
        check_type(other, LearnedGraphConv, 'other', 'a layer with a sampler')
        share_module(self, 'sampler', other)

    def _check_rows(self, x: Features) -> Ends:
        """Check the features of sources and targets."""
        check_not_batched(self, x, self.parameters())
        ends = Ends.of(x)
        if isinstance(self.in_channels, tuple) and not ends.is_pair:
            raise TypeError(
                f"'x' must be a pair (x_src, x_dst) with in_channels="
                f'{self.in_channels} (got a {type(x).__name__})'
            )
        name = 'x_src' if ends.is_pair else 'x'
        weight = self.lin.weight
        check_features(ends.src, name, self.lin.in_channels)
        check_parameter_match(ends.src, weight, name)
        if ends.is_pair:
            lin = self.lin_dst or self.lin_root
            width = ends.src.size(1)
            if isinstance(self.in_channels, tuple):
                width = self.in_channels[1] if lin is None else lin.in_channels
            check_features(ends.dst, 'x_dst', width)
            check_parameter_match(ends.dst, weight, 'x_dst')
        return ends

    def _project(self, x: Tensor, lin: Linear) -> Tensor:
        h = apply_linear(lin, x)
        check_finite(h, 'x @ weight')
        return h

    def graph(self, *args: Any, **kwargs: Any) -> SampledGraph:
        r"""Return the graph that :meth:`forward` sums over, given the same arguments:
        edges and weights, sorted by target.
        """
        graph: SampledGraph
        _, graph = self(*args, **kwargs, return_graph=True)
        return graph

    def __repr__(self) -> str:
        sampler = self.sampler
        return (
            f'{self.__class__.__name__}({self._sizes()}, '
            f'similarity={sampler.similarity}, {sampler.describe_options()})'
        )


class AnchorMixin(torch.nn.Module):
    """Base class of the modules whose transition nodes can be anchors."""

    in_channels: Any
    num_transition_nodes: int | None
    transition: str
    anchors: Tensor | None

    def _init_anchors(self) -> None:
        """Register the buffer of anchors, if there are anchors.

        Never as None: torch.export miscounts buffers that are None.
        """
        if self.transition == 'anchors':
            self.register_buffer('anchors', None)
        else:
            self.anchors = None

    def choose_anchors(
        self, x: Tensor, *, generator: torch.Generator | None = None
    ) -> Any:
        r"""Choose :obj:`num_transition_nodes` random rows as transition nodes.

        Rows are drawn without replacement, and no others are read: :obj:`x` may be a
        memory-mapped table. If :obj:`x` has exactly this many rows, such as cluster
        centres, all are kept in order. Anchors are dense and part of the
        :obj:`state_dict`; :meth:`reset_parameters` keeps them.

        Args:
            x (torch.Tensor): The rows, dense or sparse CSR.
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)

        Returns:
            torch.nn.Module: The module itself.
        """
        count = self.num_transition_nodes
        if self.transition != 'anchors' or count is None:
            raise ValueError(
                f"'transition' must be 'anchors' to choose anchors "
                f'(got {self.transition!r})'
            )
        check_matrix(x, width=self.in_channels)
        check_generator(generator, x.device)
        if x.size(0) < count:
            raise ValueError(
                f"'x' must have at least num_transition_nodes={count} rows "
                f'(got {x.size(0)})'
            )
        index = _sample_indices(x.size(0), count, generator)
        rows = dense_rows(x, index.to(x.device)).detach()
        check_finite(rows, 'x')
        self._set_anchors(rows)
        return self

    def _set_anchors(self, rows: Tensor) -> None:
        parameter = next(self.parameters())
        rows = rows.to(device=parameter.device, dtype=parameter.dtype)
        self.register_buffer('anchors', rows)

    def _required_anchors(self) -> Tensor:
        if self.anchors is None:
            raise ValueError(
                "'anchors' must be chosen first, by choose_anchors(x), or passed as "
                "the sources of a pair 'x' (got None)"
            )
        return self.anchors

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        saved = state_dict.get(f'{prefix}anchors')
        if saved is not None and self.transition == 'anchors' and self.anchors is None:
            # An empty buffer of the expected shape: PyTorch reports any other.
            width = saved.size(-1) if self.in_channels == -1 else self.in_channels
            self._set_anchors(saved.new_zeros(self.num_transition_nodes or 0, width))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _sample_indices(size: int, count: int, generator: torch.Generator | None) -> Tensor:
    """Sample :obj:`count` of :obj:`range(size)` without replacement, sorted."""
    if count == size:
        return torch.arange(size)
    device = 'cpu' if generator is None else generator.device
    seed = int(torch.randint(2**62, (), generator=generator, device=device))
    return torch.tensor(sorted(random.Random(seed).sample(range(size), count)))
