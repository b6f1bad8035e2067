from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import ones, reset

from torch_geometric_gsl._checks import (
    Ends,
    check_count,
    check_edge_index,
    check_ends,
    check_flag,
    check_option,
    check_parameter_match,
)
from torch_geometric_gsl.nn.linear import apply_linear, plain_linear
from torch_geometric_gsl.nn.shared_module import twin_of
from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.pair_scores import COMPARISONS, PairScores
from torch_geometric_gsl.ops.runtime import check_not_batched, full_precision
from torch_geometric_gsl.ops.sparse_rows import SparseRows
from torch_geometric_gsl.typing import Features

# The members that determine the scores of a class.
_SCORING = {'response', 'encode', 'comparison'}


class Similarity(torch.nn.Module, ABC):
    r"""Base class of all similarities :math:`\phi_{ij}` between nodes.

    A similarity embeds the nodes, compares two embeddings and maps the compared value
    to a score. :math:`i` is the target and :math:`j` the candidate neighbour (source).
    Subclasses implement :meth:`response`, and optionally :meth:`encode` and
    :obj:`comparison`.

    Scores of half-precision features are computed in :obj:`torch.float32`, also under
    autocast, as narrow kernels need the precision. A class that defines
    :meth:`response`, :meth:`encode` or :obj:`comparison` has no :obj:`bounds` until it
    declares them. The race raises an error if a score exceeds them.

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int, optional): Size :math:`m` of a learnable projection
            :math:`Z = X W` of the features, if given. (default: :obj:`None`)
        feature_weights (bool, optional): If :obj:`True`, multiplies each feature by a
            learnable weight, initially 1, before nodes are compared, with fewer
            parameters than a projection. (default: :obj:`False`)

    Raises:
        ValueError: If :obj:`feature_weights` is set together with a projection, which
            already weighs the features.

    Shapes:
        - **input:** node features :math:`(N, F_{in})` or a pair of them, for :math:`N`
          sources and :math:`n` targets, edges :math:`(2, |\mathcal{E}|)` *(optional)*
        - **output:** :math:`(n, N)`, or :math:`(|\mathcal{E}|)` if edges are given

    Example:
        >>> from torch_geometric_gsl.ops.scores import Response
        >>> class Cubic(Response):
        ...     monotonic = 1
        ...     @staticmethod
        ...     def value(cosine):
        ...         return cosine**3
        >>> class CubicSimilarity(Similarity):
        ...     bounds = (-1.0, 1.0)
        ...     def response(self, z):
        ...         return Cubic()
        >>> CubicSimilarity(2)(torch.tensor([[1.0, 0.0], [3.0, 4.0]]))
        tensor([[1.0000, 0.2160],
                [0.2160, 1.0000]])
    """

    #: The smallest and the largest value of the similarity, up to rounding.
    bounds: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    #: How embeddings are compared, ``'dot'`` or ``'squared_distance'``.
    comparison: ClassVar[str] = 'dot'

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_option(cls.comparison, COMPARISONS, 'comparison')
        # Inherited bounds hold for inherited scores only.
        for base in cls.__mro__:
            if 'bounds' in base.__dict__:
                break
            if _SCORING & base.__dict__.keys():
                cls.bounds = Similarity.bounds
                break

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        feature_weights: bool = False,
    ) -> None:
        super().__init__()
        check_count(in_channels, 'in_channels')
        check_flag(feature_weights, 'feature_weights')
        if feature_weights and out_channels is not None:
            raise ValueError(
                f"'feature_weights' must be False with a projection "
                f'(got out_channels={out_channels})'
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.feature_weight: torch.nn.Parameter | None = None
        if feature_weights:
            self.feature_weight = torch.nn.Parameter(torch.ones(in_channels))
        self.lin: Linear | None = None
        if out_channels is not None:
            check_count(out_channels, 'out_channels')
            self.lin = plain_linear(in_channels, out_channels)
        # A subclass with parameters resets them once it has created them all.
        if type(self).reset_parameters is Similarity.reset_parameters:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        reset(self.lin)
        ones(self.feature_weight)

    def forward(self, x: Features, edge_index: Tensor | None = None) -> Tensor:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The node
                features, or a pair :obj:`(x_src, x_dst)`.
            edge_index (torch.Tensor, optional): If given, only these pairs are
                scored: :obj:`edge_index[0]` are sources and :obj:`edge_index[1]`
                targets. (default: :obj:`None`)
        """
        check_not_batched(self, x)
        pairs = self.pair_scores(x)
        dtype = Ends.of(x).src.dtype
        with torch.autocast(pairs.src.device.type, enabled=False):
            if edge_index is None:
                return pairs.rows().to(dtype)
            check_edge_index(edge_index, pairs.src, pairs.dst)
            return pairs.edges(edge_index).to(dtype)

    @property
    def is_constant(self) -> bool:
        """Return whether all pairs have one score, as in a uniform control."""
        return self.bounds[0] == self.bounds[1]

    @property
    def embedding_channels(self) -> int:
        """Return the number of channels of an embedded node."""
        return self.in_channels if self.out_channels is None else self.out_channels

    @abstractmethod
    def response(self, z: Tensor) -> scores.Response:
        r"""Return the response, which maps compared values to scores.

        Args:
            z (torch.Tensor): The embeddings of the targets :math:`[n, m]`, for
                responses with parameters per target.
        """

    def encode(self, x: Tensor) -> Tensor:
        r"""Embed nodes, by default as the unit rows of :math:`X W`.

        Without a projection, sparse CSR features stay sparse if inner products are
        compared: :class:`~torch_geometric_gsl.ops.sparse_rows.SparseRows`.
        """
        is_plain = self.lin is None and self.feature_weight is None
        if is_plain and x.layout != torch.strided and self.comparison == 'dot':
            if x.requires_grad:
                raise ValueError(
                    "'x' must not require a gradient if it is sparse and there is no "
                    'projection (got requires_grad=True)'
                )
            # Replaces a tensor of embeddings wherever rows are indexed and compared.
            return cast(Tensor, SparseRows.unit(x))
        return scores.unit_rows(self.project(x))

    def project(self, x: Tensor) -> Tensor:
        r"""Apply the projection or the feature weights to rows.

        Half precision is cast to :obj:`torch.float32`.
        """
        if self.lin is not None:
            x = apply_linear(self.lin, x)
        elif x.layout != torch.strided:
            alternative = '' if self.feature_weight is None else ' with feature_weights'
            raise ValueError(
                f"'x' is sparse ({x.layout}), which needs a projection{alternative}: "
                f"set 'out_channels' or pass dense features"
            )
        x = full_precision(x)
        if self.feature_weight is not None:
            x = x * self.feature_weight.to(x.dtype)
        return x

    def pair_scores(
        self, x: Features | Ends, scale: float | Tensor = 1.0
    ) -> PairScores:
        r"""Check and embed sources and targets; pairs are scored on demand, multiplied
        by :obj:`scale`.
        """
        x_src, x_dst, _ = check_ends(x, self.in_channels)
        check_parameter_match(x_src, next(self.parameters(), None))
        src = self.encode(x_src)
        dst = src if x_dst is x_src else self.encode(x_dst)
        if isinstance(src, SparseRows) != isinstance(dst, SparseRows):
            raise ValueError(
                f"'x_src' and 'x_dst' must be both dense or both sparse without a "
                f'projection (got {x_src.layout} and {x_dst.layout})'
            )
        with torch.autocast(src.device.type, enabled=False):
            response = self.response(dst)
        if not isinstance(response, scores.Response):
            raise TypeError(
                f"'response' of {type(self).__name__} must return a Response "
                f'(got {type(response).__name__})'
            )
        for value in response.params:
            if not isinstance(value, Tensor) or value.shape[:1] != (dst.size(0),):
                response = response.map(partial(self._per_target, like=dst))
                break
        bounds = scale * self.bounds[0], scale * self.bounds[1]
        return PairScores(dst, src, response, self.comparison, scale, *bounds)

    def exact_scores(
        self, x: Features | Ends, scale: float | Tensor = 1.0
    ) -> PairScores:
        r"""Embed nodes as :meth:`pair_scores`, in double precision.

        Rankings need it: single precision misranks rows far from the origin. Gradients
        flow to features and parameters.
        """
        ends = check_ends(x, self.in_channels)
        x_src, x_dst, _ = ends
        check_parameter_match(x_src, next(self.parameters(), None))
        if x_src.dtype == torch.float64 or x_src.device.type == 'mps':
            # Apple's GPUs have no double precision.
            return self.pair_scores(ends, scale)
        src = x_src.double()
        dst = src if x_dst is x_src else x_dst.double()
        # A twin, as threads may share this module.
        twin: Similarity = twin_of(self)
        for module in twin.modules():
            attributes: dict[str, Any] = vars(module)
            for name in ('_parameters', '_buffers'):
                attributes[name] = _double(attributes[name])
        with torch.autocast(src.device.type, enabled=False):
            return twin.pair_scores(Ends(src, dst, ends.is_pair), scale)

    def _per_target(self, value: Any, like: Any) -> Tensor:
        """Expand a number to one value per target."""
        tensor: Tensor = torch.as_tensor(value, dtype=like.dtype, device=like.device)
        if tensor.numel() != 1 and tensor.shape[:1] != (like.size(0),):
            raise ValueError(
                f"'response' of {type(self).__name__} must have a number, or one value "
                f'per target, in each parameter (got shape {list(tensor.shape)} for '
                f'{like.size(0)} targets)'
            )
        return tensor.view(-1).expand(like.size(0)) if tensor.numel() == 1 else tensor

    def extra_repr(self) -> str:
        """Return the arguments that a subclass adds to the one-line ``repr``."""
        return ''

    def __repr__(self) -> str:
        args = [str(self.in_channels)]
        if self.out_channels is not None:
            args.append(str(self.out_channels))
        if self.feature_weight is not None:
            args.append('feature_weights=True')
        if extra := self.extra_repr():
            args.append(extra)
        return f'{self.__class__.__name__}({", ".join(args)})'


def _double(values: dict[str, Any]) -> dict[str, Any]:
    """Convert floating-point tensors to double precision."""
    return {
        name: value.double()
        if value is not None and value.is_floating_point()
        else value
        for name, value in values.items()
    }
