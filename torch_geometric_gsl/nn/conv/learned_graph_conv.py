"""Share what the layers that learn their graph have in common."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import zeros

from torch_geometric_gsl._checks import (
    check_absent,
    check_count,
    check_features,
    check_finite,
    check_flag,
    check_matrix,
    check_one_type,
    check_option,
    check_parameter_match,
    check_type,
)
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.nn.conv.observed_prior import ObservedPrior
from torch_geometric_gsl.nn.label_embedding import LabelEmbedding
from torch_geometric_gsl.nn.linear import apply_linear
from torch_geometric_gsl.nn.one_type import OneType
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops.aggregate import weighted_sum
from torch_geometric_gsl.typing import Features, SampledGraph

#: What a similarity may compare.
COMPARED = ('projected', 'input', 'embedding')
#: What given edges are.
OBSERVED = ('candidates', 'prior')


def compared_channels(
    compare: str, in_channels: int, embedding_channels: int | None
) -> int | None:
    """Return the width of what a similarity compares; None if it is projected."""
    check_option(compare, COMPARED, 'compare')
    if compare == 'embedding':
        if embedding_channels is None:
            raise ValueError(
                "'embedding_channels' must be given with compare='embedding' (got None)"
            )
        check_count(embedding_channels, 'embedding_channels')
        return embedding_channels
    check_absent(embedding_channels, 'embedding_channels', f'with compare={compare!r}')
    if compare == 'projected':
        return None
    if in_channels == -1:
        raise ValueError("'in_channels' must be known with compare='input' (got -1)")
    return in_channels


def check_embedding(
    embedding: Tensor,
    sampler: GumbelKNNSampler,
    num_nodes: int,
    name: str = 'embedding',
) -> None:
    """Raise unless a sampler can compare the rows of an embedding of the nodes."""
    check_features(embedding, name, sampler.similarity.in_channels)
    parameter = next(sampler.parameters(), None)
    check_parameter_match(embedding, parameter, name)
    if embedding.size(0) != num_nodes:
        raise ValueError(
            f"'{name}' must have one row per node "
            f'(got {embedding.size(0)} for {num_nodes} nodes)'
        )


def check_shard(shard: RowShard | None, x: Tensor, **given: object) -> None:
    """Raise if a shard is given for other rows, or beside what has no meaning then."""
    if shard is None:
        return
    check_one_type(x)
    check_type(shard, RowShard, 'shard', 'a RowShard')
    check_matrix(x)
    for name, value in given.items():
        check_absent(value, name, "with a 'shard'")
    if shard.num_rows != x.size(0):
        raise ValueError(
            f"'x' must have the {shard.num_rows} rows of this rank (got {x.size(0)})"
        )


def gathered(x: Tensor, shard: RowShard | None) -> Tensor:
    """Return the rows of all ranks, which are those given without a shard."""
    return x if shard is None else shard.gather(x)


class RootTerm(OneType):
    """Base class of the layers that add a root term and a bias to their messages."""

    def _keep_sizes(self, in_channels: int, out_channels: int) -> None:
        """Check and keep the sizes; those of the input may be unknown."""
        if in_channels != -1:
            check_count(in_channels, 'in_channels')
        check_count(out_channels, 'out_channels')
        self.in_channels = in_channels
        self.out_channels = out_channels

    def _make_root(self, root_weight: bool, bias: bool) -> None:
        """Make the root weight and the bias, of the sizes that are kept."""
        check_flag(root_weight, 'root_weight')
        check_flag(bias, 'bias')
        self.root_weight = root_weight
        self.lin_root = self._make_linear() if root_weight else None
        self.bias: torch.nn.Parameter | None = None
        if bias:
            self.bias = torch.nn.Parameter(torch.empty(self.out_channels))

    def _make_linear(self) -> Linear:
        sizes = self.in_channels, self.out_channels
        return Linear(*sizes, bias=False, weight_initializer='glorot')

    def _reset_root(self) -> None:
        if self.lin_root is not None:
            self.lin_root.reset_parameters()
        zeros(self.bias)

    def _add_root(self, x: Tensor, out: Tensor) -> Tensor:
        if self.lin_root is not None:
            out = out + apply_linear(self.lin_root, x)
        return out if self.bias is None else out + self.bias

    def _sizes(self) -> str:
        return f'{self.in_channels}, {self.out_channels}'


class LearnedGraphConv(RootTerm):
    """Base class of the layers that learn the graph on which they sum messages."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        similarity: str | Similarity = 'neural_gaussian',
        k: int = 5,
        tau: float = 0.25,
        *,
        similarity_kwargs: dict[str, Any] | None = None,
        root_weight: bool = True,
        add_self_loops: bool = False,
        bias: bool = True,
        compare: str = 'projected',
        embedding_channels: int | None = None,
        observed: str = 'candidates',
        label_channels: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        check_flag(add_self_loops, 'add_self_loops')
        self.add_self_loops = add_self_loops
        self._keep_sizes(in_channels, out_channels)
        self.lin = self._make_linear()
        self._make_root(root_weight, bias)
        check_option(observed, OBSERVED, 'observed')
        self.compare = compare
        self.prior = ObservedPrior() if observed == 'prior' else None
        self.label: LabelEmbedding | None = None
        if label_channels is not None:
            if self.prior is not None:
                raise ValueError(
                    "'label_channels' must be None with observed='prior' "
                    f'(got {label_channels})'
                )
            self.label = LabelEmbedding(label_channels, out_channels)
        width = compared_channels(compare, in_channels, embedding_channels)
        width = out_channels if width is None else width
        compared = resolve_similarity(similarity, width, **(similarity_kwargs or {}))
        self.sampler = GumbelKNNSampler(compared, k, tau, **kwargs)
        # Not that of a subclass, whose own parameters are yet to come.
        LearnedGraphConv.reset_parameters(self)

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        self.lin.reset_parameters()
        self._reset_root()
        self.sampler.reset_parameters()
        for module in (self.prior, self.label):
            if module is not None:
                module.reset_parameters()

    def _projection(self, name: str) -> Linear:
        """Return the projection of the rows that an argument of this name holds."""
        return self.lin

    def _check_rows(self, x: Tensor, name: str = 'x') -> None:
        lin = self._projection(name)
        check_features(x, name, lin.in_channels)
        check_parameter_match(x, lin.weight, name)

    def _project(self, x: Tensor, name: str = 'x') -> Tensor:
        self._check_rows(x, name)
        h = apply_linear(self._projection(name), x)
        check_finite(h, f'{name} @ weight')
        return h

    def _summed(
        self,
        z: Features,
        source: Tensor,
        shard: RowShard | None,
        generator: torch.Generator | None,
        graph: SampledGraph | None = None,
        **candidates: Any,
    ) -> Tensor:
        """Sum messages over a graph, drawn now if none is given, of this rank."""
        if graph is None:
            rows = None if shard is None else shard.rows
            draw = self.sampler.propagate
            out = draw(z, source, **candidates, rows=rows, generator=generator)
        else:
            edge_index, weight = graph
            size = (z[1] if isinstance(z, tuple) else z).size(0)
            if shard is not None:
                edge_index, size = shard.own_edges(edge_index), shard.num_rows
            with torch.autocast(source.device.type, enabled=False):
                out = weighted_sum(source, edge_index, weight, size)
        if shard is None:
            return out
        compared = z if isinstance(z, tuple) else (z,)
        others = [part for part in compared if part is not source]
        return shard.attach(out, source, *others)

    def _finish(self, x: Tensor, h: Tensor | None, out: Tensor) -> Tensor:
        if self.add_self_loops and h is not None:
            out = (out + h) / 2
        return self._add_root(x, out)

    def __repr__(self) -> str:
        sampler = self.sampler
        text = (
            f'{self.__class__.__name__}({self._sizes()}, '
            f'similarity={sampler.similarity}, k={sampler.k}, tau={sampler.tau}'
        )
        if sampler.initial_null is not None:
            text += f', null_score={sampler.initial_null}'
        if self.prior is not None:
            text += ", observed='prior'"
        return f'{text})'
