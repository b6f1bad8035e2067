from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import reset, zeros
from typing_extensions import Unpack

from torch_geometric_gsl._checks import as_pair, check_count, check_flag, check_option
from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.learned_graph_conv import RootTerm
from torch_geometric_gsl.nn.linear import apply_linear, check_input
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import share_similarities
from torch_geometric_gsl.nn.sampler.options import (
    SamplerOptions,
    check_options,
)
from torch_geometric_gsl.nn.shared_part import keeping, share_part
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.gaussian_similarity import (
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.ops.edges import mix_graphs
from torch_geometric_gsl.typing import Batch, Features, SampledGraph

#: The mixture weights: parameters, or functions of each row.
SHARES = ('global', 'node')


class RelationShares(torch.nn.Module):
    """Compute mixture weights of relations by a softmax of parameters or rows."""

    def __init__(
        self, in_channels: int, num_relations: int, kind: str = 'global'
    ) -> None:
        super().__init__()
        check_option(kind, SHARES, 'shares')
        if kind == 'node' and in_channels == -1:
            raise ValueError("'in_channels' must be known if shares='node' (got -1)")
        self.kind = kind
        self.logits: torch.nn.Parameter | None = None
        self.lin: Linear | None = None
        if kind == 'node':
            self.lin = Linear(in_channels, num_relations)
        else:
            self.logits = torch.nn.Parameter(torch.empty(num_relations))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        zeros(self)

    def forward(self, x: Tensor | None = None) -> Tensor:
        """Compute the mixture weights [R], or [n, R] for rows."""
        if self.logits is not None:
            return self.logits.softmax(dim=0)
        lin, rows = cast(Linear, self.lin), cast(Tensor, x)
        check_input(rows, lin)
        return apply_linear(lin, rows).softmax(dim=1)


class MultiplexLatentGraphConv(RootTerm):
    r"""Graph convolution on several learned graphs of one set of nodes, each as in
    the `"Neural Gaussian Similarity Modeling for Differential Graph Structure
    Learning" <https://arxiv.org/abs/2312.09498>`_ paper.

    .. math::
        \mathbf{h}^{\prime}_i = \sum_{r=1}^{R} \alpha_{ir} \sum_j A^{(r)}_{ij}
        \mathbf{x}_j \mathbf{W} + \mathbf{x}_i \mathbf{W}_{\textrm{root}} +
        \mathbf{b}

    where :math:`\mathbf{A}^{(r)}` is the graph of relation :math:`r`, with its own
    similarity and sampler as in
    :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`, and the mixture weights
    :math:`\alpha_{i1}, \ldots, \alpha_{iR}` are positive and sum to 1: a softmax of
    :math:`R` parameters, or of a linear map of :math:`\mathbf{x}_i`. They are equal
    initially. With :obj:`same_messages=False` each relation has its own projection
    :math:`\mathbf{W}^{(r)}`. With one relation the layer is a
    :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`.

    Relations with equal initial values would stay equal. Therefore the centres of
    neural Gaussians with a bias are initialised evenly over their range, at :math:`(r -
    \frac{1}{2}) / R` of it, and feature weights at 1 plus noise of 0.1. Equal
    similarities without parameters raise an error, and so does one module for two
    relations, unless each relation has its own projection.

    Args:
        in_channels (int): Size of each input sample; :obj:`-1` for lazy initialization.
        out_channels (int): Size of each output sample.
        num_relations (int): The number of relations :math:`R`.
        similarity (str, Similarity or list, optional): The similarity of two nodes, by
            name, as a module (copied for later relations), or a list with one per
            relation. (default: :obj:`"mixture"`)
        k, tau (optional): As in
            :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`.
        shares (str, optional): Whether the mixture weights are parameters
            (:obj:`"global"`) or depend on the features of the target (:obj:`"node"`).
            (default: :obj:`"global"`)
        same_messages (bool, optional): If :obj:`False`, each relation has its own
            projection of the messages, so that relations may cancel each other.
            (default: :obj:`True`)
        similarity_kwargs (dict or list, optional): Arguments of named similarities, or
            a list with one dictionary per relation. (default: :obj:`None`)
        root_weight, bias, z_channels (optional): As in
            :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`.
        **kwargs (optional): Further options of the samplers, such as :obj:`scale`.

    Shapes:
        - **input and output:** as in
          :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`

    Raises:
        ValueError: If a list does not have one entry per relation, or relations would
            stay equal.

    Example:
        >>> conv = MultiplexLatentGraphConv(16, 32, num_relations=2)
        >>> conv(torch.randn(100, 16)).shape
        torch.Size([100, 32])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_relations: int,
        similarity: str | Similarity | Sequence[str | Similarity] = 'mixture',
        k: int = 5,
        tau: float = 0.5,
        *,
        shares: str = 'global',
        same_messages: bool = True,
        similarity_kwargs: dict[str, Any] | Sequence[dict[str, Any]] | None = None,
        root_weight: bool = True,
        bias: bool = True,
        z_channels: int | None = None,
        **kwargs: Unpack[SamplerOptions],
    ) -> None:
        super().__init__()
        check_options(type(self), kwargs, SamplerOptions.__annotations__)
        check_count(num_relations, 'num_relations')
        check_flag(same_messages, 'same_messages')
        self._keep_sizes(in_channels, out_channels)
        self.num_relations = num_relations
        self.same_messages = same_messages
        options: Any = {'root_weight': False, 'bias': False, **kwargs}
        options['z_channels'] = z_channels
        kinds = one_each(similarity, num_relations, 'similarity')
        each = one_each(similarity_kwargs, num_relations, 'similarity_kwargs')
        sizes = in_channels, out_channels
        self.relations = torch.nn.ModuleList(
            LatentGraphConv(*sizes, kind, k, tau, similarity_kwargs=own, **options)
            for kind, own in zip(kinds, each, strict=True)
        )
        if same_messages:
            for relation in self.relations[1:]:
                share_part(relation, 'lin', self.relations[0])
        share_similarities(self)
        self._make_root(root_weight, bias)
        self.mixture = RelationShares(in_channels, num_relations, shares)
        with keeping(*kinds):
            self.reset_parameters()
        if same_messages or z_channels is not None:
            check_apart(self._similarities)

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        reset(self.relations)
        begin_apart(self._similarities)
        self._reset_root()
        self.mixture.reset_parameters()

    @property
    def _convs(self) -> list[LatentGraphConv]:
        return [cast(LatentGraphConv, relation) for relation in self.relations]

    @property
    def _similarities(self) -> list[Similarity]:
        return [relation.sampler.similarity for relation in self._convs]

    def shares(self, x: Tensor | None = None) -> Tensor:
        r"""Return the mixture weights :math:`[R]` of the relations, which sum to 1, or
        with :obj:`shares="node"` the weights :math:`[|\mathcal{V}|, R]` of each target.
        """
        shares: Tensor = self.mixture(x)
        return shares

    def forward(
        self,
        x: Features,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Batch | None = None,
        *,
        z: Features | None = None,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> Tensor | tuple[Tensor, list[SampledGraph]]:
        r"""Run the forward pass; relations sample in order.

        The arguments are those of
        :meth:`~torch_geometric_gsl.nn.conv.LatentGraphConv.forward`, except :obj:`y`;
        with :obj:`return_graph=True` it also returns the graph of each relation.
        """
        given = edge_index, edge_weight, batch, None, z, generator, return_graph
        projected = self._convs[0]._projections(x)
        _, x_dst = as_pair(x)
        shares = self.shares(x_dst)
        graphs: list[SampledGraph] = []
        total: Any = 0
        for number, relation in enumerate(self._convs):
            if number > 0 and not self.same_messages:
                projected = relation._projections(x)
            out = relation._convolve(x, projected, *given)
            if return_graph:
                out, graph = out
                graphs.append(graph)
            total = total + shares[..., number, None].to(out.dtype) * out
        out = self._add_root(x_dst, total)
        return (out, graphs) if return_graph else out

    def graphs(self, *args: Any, **kwargs: Any) -> list[SampledGraph]:
        r"""Return the graph of each relation that :meth:`forward` sums over."""
        _, graphs = self(*args, **kwargs, return_graph=True)
        return list(graphs)

    def graph(self, x: Features, *args: Any, **kwargs: Any) -> SampledGraph:
        r"""Return the weighted mixture of :meth:`graphs`; duplicate edges add up."""
        return self.mix(self.graphs(x, *args, **kwargs), x)

    def mix(self, graphs: list[SampledGraph], x: Features) -> SampledGraph:
        r"""Mix the graphs of a call with :obj:`x`."""
        x_src, x_dst = as_pair(x)
        most = max(x_src.size(0), x_dst.size(0))
        return mix_graphs(graphs, self.shares(x_dst), most)

    def share_sampler(self, other: MultiplexLatentGraphConv) -> None:
        r"""Use the samplers of another layer with the same number of relations, as
        :meth:`LatentGraphConv.share_sampler`.
        """
        if other.num_relations != self.num_relations:
            raise ValueError(
                f"'other' must have {self.num_relations} relations "
                f'(got {other.num_relations})'
            )
        for relation, source in zip(self._convs, other._convs, strict=True):
            relation.share_sampler(source)

    def __repr__(self) -> str:
        sampler = self._convs[0].sampler
        kinds = self._similarities
        equal = len({*map(repr, kinds)}) == 1
        text = f'{self._sizes()}, num_relations={self.num_relations}, '
        text += f'similarity={kinds[0] if equal else kinds}'
        text += f', {sampler.describe_options()}'
        if self.mixture.kind == 'node':
            text += ", shares='node'"
        if not self.same_messages:
            text += ', same_messages=False'
        return f'{self.__class__.__name__}({text})'


def one_each(value: Any, number: int, name: str) -> list[Any]:
    """Return one value per relation: a list, or copies of one value."""
    if not isinstance(value, tuple | list):
        return [value, *(copy.deepcopy(value) for _ in range(number - 1))]
    if len(value) != number:
        raise ValueError(
            f"'{name}' must have one entry per relation "
            f'(got {len(value)} for {number} relations)'
        )
    return list(value)


def begin_apart(similarities: Sequence[Similarity]) -> None:
    """Initialise constant parameters differently for each relation."""
    if len(similarities) == 1:
        return
    for number, similarity in enumerate(map(_inner, similarities)):
        bell = getattr(similarity, 'bell', similarity)
        if isinstance(bell, NeuralGaussianSimilarity) and bell.bias_b is not None:
            lowest = bell.lowest_centre
            step = (1 - lowest) / len(similarities)
            bell.begin_at(lowest + (number + 0.5) * step)
        if similarity.feature_weight is not None:
            torch.nn.init.normal_(similarity.feature_weight, 1.0, 0.1)


def check_apart(similarities: Sequence[Similarity]) -> None:
    """Raise if two relations share a similarity, or start with equal parameters."""
    if len({id(_inner(similarity)) for similarity in similarities}) < len(similarities):
        raise ValueError(
            "'similarity' must have a separate module for each relation (got one "
            'module twice)'
        )
    fixed = [
        repr(similarity)
        for similarity in similarities
        if next(similarity.parameters(), None) is None
    ]
    if len(set(fixed)) < len(fixed):
        raise ValueError(
            f"'similarity' must have distinct initial values; pass one "
            f"'similarity_kwargs' per relation (got {fixed})"
        )


def _inner(similarity: Similarity) -> Similarity:
    """Return the inner similarity of a directed one."""
    return getattr(similarity, 'similarity', similarity)
