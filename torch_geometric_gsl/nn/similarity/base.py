from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import Linear

from torch_geometric_gsl._checks import (
    check_count,
    check_edge_index,
    check_option,
    check_pair,
    check_parameter_match,
)
from torch_geometric_gsl.nn.linear import apply_linear
from torch_geometric_gsl.nn.similarity._compare import (
    COMPARISONS,
    compare_all,
    comparison_of,
)
from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.chunking import MEMORY_BUDGET
from torch_geometric_gsl.ops.fused import FusedScore
from torch_geometric_gsl.ops.pairs import Neighbours, compare_listed
from torch_geometric_gsl.ops.precision import full_precision
from torch_geometric_gsl.typing import Features

# What a subclass overrides to have a score of its own.
_SCORING = {
    'comparison',
    'response',
    'score_rows',
    'score_pairs',
    'respond_rows',
    'compare_neighbours',
    'compare_groups',
}


class EncodedPair(NamedTuple):
    r"""Sources and targets, embedded and ready to be scored by blocks.

    Args:
        src (torch.Tensor): Embeddings of the sources :math:`[N, m]`.
        dst (torch.Tensor): Embeddings of the targets :math:`[n, m]`.
        params (tuple): Parameters of the response of each target, :math:`[n]` each.
    """

    src: Tensor
    dst: Tensor
    params: tuple[Tensor, ...]


class Similarity(torch.nn.Module, ABC):
    r"""Base class of all similarities :math:`\phi_{ij}` between nodes.

    A similarity embeds the nodes, compares two embeddings and maps the compared
    value to a score. :math:`i` receives (target) and :math:`j` is the candidate
    neighbour (source). Subclasses implement :meth:`response`, and where they need
    to :meth:`encode`, :meth:`target_params` and :obj:`comparison`.

    Scores of half-precision features are computed in :obj:`torch.float32`, also
    under autocast: a narrow bell cannot be resolved otherwise.

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int, optional): Size :math:`m` of a learnable projection
            :math:`Z = X W`. If :obj:`None`, the features are compared as they are.
            (default: :obj:`None`)

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})` or a pair
          :math:`((|\mathcal{V}_s|, F_{in}), (|\mathcal{V}_t|, F_{in}))`, edge
          indices :math:`(2, |\mathcal{E}|)` *(optional)*
        - **output:** :math:`(|\mathcal{V}_t|, |\mathcal{V}_s|)`, or
          :math:`(|\mathcal{E}|)` if edge indices are given
    """

    #: The smallest and the largest value of the similarity, up to rounding.
    bounds: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    #: What is compared, ``'dot'`` or ``'squared_distance'``.
    comparison: ClassVar[str] = 'dot'
    #: The name of :meth:`response` as a formula that a kernel knows,
    #: if it is one; a subclass with a response of its own has none.
    formula: ClassVar[str | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_option(cls.comparison, COMPARISONS, 'comparison')
        # What a class says of its own scores need not hold for another score.
        if cls._differs('formula', _SCORING):
            cls.formula = Similarity.formula
        if cls._differs('bounds', {'response', 'comparison', 'encode'}):
            cls.bounds = Similarity.bounds

    @classmethod
    def _differs(cls, name: str, others: set[str]) -> bool:
        """Whether others are not those of the class that says what is named."""
        owner = next(base for base in cls.__mro__ if name in base.__dict__)
        return any(getattr(cls, other) != getattr(owner, other) for other in others)

    def __init__(self, in_channels: int, out_channels: int | None = None) -> None:
        super().__init__()
        check_count(in_channels, 'in_channels')
        if out_channels is not None:
            check_count(out_channels, 'out_channels')
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.lin: Linear | None = None
        if out_channels is not None:
            self.lin = Linear(
                in_channels, out_channels, bias=False, weight_initializer='glorot'
            )

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        if self.lin is not None:
            self.lin.reset_parameters()

    @property
    def embedding_channels(self) -> int:
        """The number of channels of an embedded node."""
        return self.in_channels if self.out_channels is None else self.out_channels

    @abstractmethod
    def response(self, value: Tensor, *params: Tensor) -> Tensor:
        r"""Maps compared values to scores.

        Args:
            value (torch.Tensor): Inner products or squared distances.
            *params (torch.Tensor): What :meth:`target_params` returned for the
                targets, broadcastable to :obj:`value`.
        """

    def target_params(self, z: Tensor) -> tuple[Tensor, ...]:
        r"""Parameters of the response of each target, :math:`[n]` each."""
        return ()

    def encode(self, x: Tensor) -> Tensor:
        r"""Embeds nodes; by default the unit rows of :math:`X W`."""
        return scores.unit_rows(self.project(x))

    def project(self, x: Tensor) -> Tensor:
        r"""Applies the projection, if there is one, and leaves half precision."""
        if self.lin is not None:
            x = apply_linear(self.lin, x)
        elif x.layout != torch.strided:
            raise ValueError(
                f"'x' is sparse ({x.layout}), which needs a projection: "
                f"pass 'out_channels' or dense features"
            )
        return full_precision(x)

    def encode_pair(self, x: Features) -> EncodedPair:
        r"""Checks and embeds sources and targets, to be scored by blocks.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): Features of the
                nodes, or of sources and targets.
        """
        x_src, x_dst = check_pair(x, self.in_channels)
        check_parameter_match(x_src, next(self.parameters(), None))
        src = self.encode(x_src)
        dst = src if x_dst is x_src else self.encode(x_dst)
        with torch.autocast(src.device.type, enabled=False):
            return EncodedPair(src, dst, self.target_params(dst))

    def score_rows(self, pair: EncodedPair, rows: slice = slice(None)) -> Tensor:
        r"""Scores all sources for a block of targets.

        Args:
            pair (EncodedPair): The embedded nodes.
            rows (slice, optional): The targets. (default: :obj:`slice(None)`)
        """
        with torch.autocast(pair.src.device.type, enabled=False):
            value = compare_all(self.comparison, pair.src, pair.dst[rows])
            return self.response(value, *(p[rows].unsqueeze(-1) for p in pair.params))

    def score_pairs(
        self,
        pair: EncodedPair,
        source: Tensor,
        target: Tensor,
        *,
        memory_budget: int = MEMORY_BUDGET,
    ) -> Tensor:
        r"""Scores listed pairs; the two indices broadcast against each other.

        Args:
            pair (EncodedPair): The embedded nodes.
            source (torch.Tensor): Indices of sources.
            target (torch.Tensor): Indices of targets.
            memory_budget (int, optional): Bytes for one block of pairs.
                (default: :obj:`2**25`)
        """
        source, target = torch.broadcast_tensors(source, target)
        compare = comparison_of(self.comparison)
        with torch.autocast(pair.src.device.type, enabled=False):
            value = compare_listed(
                compare,
                pair.dst,
                pair.src,
                source,
                target,
                memory_budget=memory_budget,
            )
            return self.response(value, *(param[target] for param in pair.params))

    def compare_neighbours(
        self, pair: EncodedPair, rows: slice, neighbours: Neighbours
    ) -> Tensor:
        r"""Compares each target of a block with the sources that it lists.

        Args:
            pair (EncodedPair): The embedded nodes.
            rows (slice): The targets.
            neighbours (Neighbours): Their sources :math:`[|\mathrm{rows}|, q]`.

        Returns:
            torch.Tensor: Inner products or squared distances of that shape.
        """
        with torch.autocast(pair.src.device.type, enabled=False):
            compare = comparison_of(self.comparison)
            return compare(pair.dst[rows], pair.src, neighbours)

    def compare_groups(self, pair: EncodedPair, group: int) -> Tensor:
        r"""Compares groups of targets with the sources of their group.

        Args:
            pair (EncodedPair): The embedded nodes; sources are :math:`[B, S, m]`.
            group (int): The number of targets of a group; the last may have fewer.

        Returns:
            torch.Tensor: Inner products or squared distances :math:`[n, S]`.
        """
        with torch.autocast(pair.src.device.type, enabled=False):
            missing = pair.src.size(0) * group - pair.dst.size(0)
            dst = F.pad(pair.dst, (0, 0, 0, missing)).unflatten(0, (-1, group))
            value = compare_all(self.comparison, pair.src, dst)
            return value.flatten(0, 1)[: pair.dst.size(0)]

    def respond_rows(self, pair: EncodedPair, rows: slice, value: Tensor) -> Tensor:
        r"""Maps the compared values of a block of targets to scores.

        Args:
            pair (EncodedPair): The embedded nodes.
            rows (slice): The targets.
            value (torch.Tensor): Compared values :math:`[|\mathrm{rows}|, q]`.
        """
        with torch.autocast(pair.src.device.type, enabled=False):
            return self.response(value, *(p[rows].unsqueeze(-1) for p in pair.params))

    def fused_score(self, pair: EncodedPair, scale: float) -> FusedScore | None:
        r"""The scaled scores as a formula that a kernel computes.

        Args:
            pair (EncodedPair): The embedded nodes.
            scale (float): The factor of the similarity.
        """
        if self.formula is None:
            return None
        b, c = self.formula_params(pair)
        return FusedScore(pair.dst, pair.src, self.formula, b, c, scale)

    def formula_params(self, pair: EncodedPair) -> tuple[Tensor | None, Tensor | None]:
        r"""The parameters :math:`b` and :math:`c` of the formula, of each target."""
        return None, None

    def forward(self, x: Features, edge_index: Tensor | None = None) -> Tensor:
        r"""Runs the forward pass.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The node
                features, or a pair :obj:`(x_src, x_dst)`.
            edge_index (torch.Tensor, optional): If given, only these pairs are
                scored: :obj:`edge_index[0]` are sources and :obj:`edge_index[1]`
                targets. (default: :obj:`None`)

        Raises:
            TypeError: If an input has the wrong type or dtype.
            ValueError: If an input has the wrong shape or device, or holds NaN or
                infinite values, or :obj:`edge_index` is out of range.
        """
        pair = self.encode_pair(x)
        dtype = (x[0] if isinstance(x, tuple | list) else x).dtype
        if edge_index is None:
            return self.score_rows(pair).to(dtype)
        check_edge_index(edge_index, pair.src, pair.dst)
        return self.score_pairs(pair, edge_index[0], edge_index[1]).to(dtype)

    def extra_repr(self) -> str:
        """Arguments that a subclass adds to the one-line ``repr``."""
        return ''

    def __repr__(self) -> str:
        args = [str(self.in_channels)]
        if self.out_channels is not None:
            args.append(str(self.out_channels))
        if extra := self.extra_repr():
            args.append(extra)
        return f'{self.__class__.__name__}({", ".join(args)})'
