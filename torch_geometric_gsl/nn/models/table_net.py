from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn.inits import reset

from torch_geometric_gsl._checks import (
    check_count,
    check_pair,
    check_parameter_match,
    check_probability,
)
from torch_geometric_gsl.nn.label_embedding import LabelEmbedding
from torch_geometric_gsl.nn.models.pretrained import Pretrained
from torch_geometric_gsl.nn.one_type import OneType
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.distance_similarity import DistanceSimilarity
from torch_geometric_gsl.ops.aggregate import neighbour_graph, weighted_sum
from torch_geometric_gsl.ops.local_random import dropout
from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.pool_sum import distances_as_dots, pool_sum
from torch_geometric_gsl.ops.ranking import best_sources
from torch_geometric_gsl.typing import Features, SampledGraph


class TableNet(OneType, Pretrained):
    r"""A net for the rows of a table, whose neighbours tell their labels.

    .. math::
        \mathbf{h}^{\prime}_i = \mathbf{h}_i + \sum_{j \neq i}
        \mathrm{softmax}_j(- \lambda \lVert \mathbf{z}_i - \mathbf{z}_j \rVert^2)
        \, (\mathbf{h}_j \mathbf{W}_v + y_j \mathbf{W}_y)

    where :math:`\mathbf{h}_i` is a linear map of the columns and of periodic
    embeddings of them, from the `"On Embeddings for Numerical Features in Tabular Deep
    Learning" <https://arxiv.org/abs/2203.05556>`_ paper, and :math:`\mathbf{z}_i` a
    projection of it, as in the `"TabR: Tabular Deep Learning Meets Nearest Neighbors"
    <https://arxiv.org/abs/2307.14338>`_ paper. A residual block and a linear map turn
    :math:`\mathbf{h}^{\prime}_i` into the output.

    No row hears its own label: rows that are given as one tensor are neighbours of all
    others but themselves, and of a pair :obj:`(x_src, x_dst)` the sources are to be
    other rows than the targets. Labels travel one layer, so that they cannot come back.

    In training mode the sum goes over all sources, or over :obj:`draws` relaxed draws
    of :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler`; in evaluation mode
    over the :obj:`eval_k` nearest, whose weights sum to 1.

    Args:
        in_channels (int): The number of columns.
        hidden_channels (int): The number of hidden units.
        out_channels (int): The number of classes, or of target columns.
        key_channels (int, optional): Size of what is compared; half of the hidden units
            if :obj:`None`. (default: :obj:`None`)
        num_frequencies (int, optional): The number of frequencies of each column; 0 for
            no periodic embeddings. (default: :obj:`32`)
        frequency_scale (float, optional): The deviation of the frequencies at the
            start. (default: :obj:`0.03`)
        embedding_channels (int, optional): Size of the periodic embedding of a column.
            (default: :obj:`12`)
        dropout (float, optional): The share of hidden units of the residual block that
            are left out in training. (default: :obj:`0.2`)
        graph_dropout (float, optional): The share of weights that are. Draws drop none.
            (default: :obj:`0.2`)
        draws (int, optional): The number of relaxed draws in training; the sum goes
            over all sources if :obj:`None`. (default: :obj:`None`)
        eval_k (int, optional): The number of neighbours in evaluation mode.
            (default: :obj:`96`)

    Shapes:
        - **input:** columns :math:`(N, F_{in})` or a pair of them, for :math:`N`
          sources and :math:`n` targets; labels of the sources, classes
          :math:`(N)` or numbers :math:`(N, F_{out})`
        - **output:** :math:`(n, F_{out})`

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.
        ImportError: If there are frequencies, and rtdl_num_embeddings is missing.

    Example:
        >>> x, y = torch.randn(100, 8), torch.randn(100)
        >>> net = TableNet(8, 32, 1, num_frequencies=0)
        >>> net(x, y).shape  # Each row among all others.
        torch.Size([100, 1])
        >>> new = net.eval().index(x, y)(torch.randn(3, 8))
        >>> new.shape
        torch.Size([3, 1])
    """

    index_key: Tensor | None
    index_message: Tensor | None

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        key_channels: int | None = None,
        num_frequencies: int = 32,
        frequency_scale: float = 0.03,
        embedding_channels: int = 12,
        dropout: float = 0.2,
        graph_dropout: float = 0.2,
        draws: int | None = None,
        eval_k: int = 96,
    ) -> None:
        super().__init__()
        sizes = {
            'in_channels': in_channels,
            'hidden_channels': hidden_channels,
            'out_channels': out_channels,
            'embedding_channels': embedding_channels,
            'eval_k': eval_k,
        }
        for name, value in {'draws': draws, 'key_channels': key_channels}.items():
            sizes |= {} if value is None else {name: value}
        for name, value in sizes.items():
            check_count(value, name)
        check_count(num_frequencies, 'num_frequencies', minimum=0)
        check_probability(dropout, 'dropout')
        check_probability(graph_dropout, 'graph_dropout')
        self.in_channels, self.out_channels = in_channels, out_channels
        self.hidden_channels, self.eval_k = hidden_channels, eval_k
        self.dropout, self.graph_dropout = dropout, graph_dropout
        self.draws = draws
        width = in_channels
        self.periodic: torch.nn.Module | None = None
        if num_frequencies > 0:
            self.periodic = _periodic(
                in_channels, embedding_channels, num_frequencies, frequency_scale
            )
            width += in_channels * embedding_channels
        hidden, key = hidden_channels, key_channels or max(1, hidden_channels // 2)
        self.lin = torch.nn.Linear(width, hidden)
        self.norm, self.lin_key = (
            torch.nn.LayerNorm(hidden),
            torch.nn.Linear(hidden, key),
        )
        self.lin_value = torch.nn.Linear(hidden, hidden, bias=False)
        self.label = LabelEmbedding(out_channels, hidden)
        self.sampler = GumbelKNNSampler(
            DistanceSimilarity(key), draws or 4, 1.0, scale='learned', loop=False
        )
        self.block = torch.nn.ModuleList(
            [
                torch.nn.LayerNorm(hidden),
                torch.nn.Linear(hidden, 2 * hidden),
                torch.nn.Linear(2 * hidden, hidden),
            ]
        )
        self.head_norm = torch.nn.LayerNorm(hidden)
        self.head = torch.nn.Linear(hidden, out_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module; an index is dropped."""
        for module in self.children():
            reset(module)
        self.forget()

    def forward(
        self,
        x: Features,
        y: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> Tensor | tuple[Tensor, SampledGraph]:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The rows, or a pair
                :obj:`(x_src, x_dst)` of neighbours and of rows that are answered.
                Where rows are indexed, a tensor without labels holds new rows.
            y (torch.Tensor, optional): The labels of the sources, -1 or NaN where one
                is unknown; none is known if :obj:`None`. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)
            return_graph (bool, optional): If :obj:`True`, returns the graph over which
                this very call summed as well. (default: :obj:`False`)
        """
        x_src, x_dst = check_pair(x, self.in_channels)
        check_parameter_match(x_src, self.lin.weight)
        h_dst = self._encode(x_dst)
        key, message = self.index_key, self.index_message
        is_new = not isinstance(x, tuple | list) and y is None
        if not is_new or key is None or message is None:
            h_src = h_dst if x_dst is x_src else self._encode(x_src)
            key, message = self._key(h_src), self._message(h_src, y)
            own = key if x_dst is x_src else self._key(h_dst)
        else:
            own = self._key(h_dst)
        pair: Features = key if own is key else (key, own)
        out, graph = self._sum(pair, message, generator, return_graph)
        h = h_dst + out
        h = h + self._block(h, generator)
        out = self.head(F.relu(self.head_norm(h)))
        return (out, graph) if graph is not None else out

    @torch.no_grad()
    def index(self, x: Tensor, y: Tensor | None = None) -> TableNet:
        r"""Keep what rows tell new ones, computed once: their keys and messages.

        They are part of :obj:`state_dict`; a change of the parameters does not reach
        them.

        Args:
            x (torch.Tensor): The rows.
            y (torch.Tensor, optional): Their labels. (default: :obj:`None`)

        Returns:
            TableNet: The model itself.
        """
        check_pair(x, self.in_channels)
        h = self._encode(x)
        self.register_buffer('index_key', self._key(h))
        self.register_buffer('index_message', self._message(h, y))
        return self

    def forget(self) -> TableNet:
        r"""Drop the rows that were indexed; return the model itself."""
        self.register_buffer('index_key', None)
        self.register_buffer('index_message', None)
        return self

    def _encode(self, x: Tensor) -> Tensor:
        if self.periodic is not None:
            x = torch.cat([x, self.periodic(x).flatten(1)], dim=1)
        h: Tensor = self.lin(x)
        return h

    def _key(self, h: Tensor) -> Tensor:
        key: Tensor = self.lin_key(self.norm(h))
        return key

    def _message(self, h: Tensor, y: Tensor | None) -> Tensor:
        message: Tensor = self.lin_value(h)
        return message if y is None else message + self.label(y, h.size(0))

    def _block(self, h: Tensor, generator: torch.Generator | None) -> Tensor:
        norm, first, second = self.block
        h = dropout(F.relu(first(norm(h))), self.dropout, self.training, generator)
        out: Tensor = second(h)
        return out

    def _pairs(self, z: Features) -> PairScores:
        pairs = self.sampler.similarity.pair_scores(z, self.sampler.factor)
        if isinstance(z, tuple):
            return pairs
        return pairs._replace(excluded=torch.arange(z.size(0), device=z.device))

    def _sum(
        self,
        z: Features,
        message: Tensor,
        generator: torch.Generator | None,
        return_graph: bool,
    ) -> tuple[Tensor, SampledGraph | None]:
        """Sum the messages of neighbours, and return their graph if it is wanted."""
        if self.training and self.draws is not None:
            if not return_graph:
                return self.sampler.propagate(z, message, generator=generator), None
            graph = self.sampler(z, generator=generator)
            edge_index, edge_weight = graph
            num_targets = z[1].size(0) if isinstance(z, tuple) else z.size(0)
            return weighted_sum(message, edge_index, edge_weight, num_targets), graph
        pairs = self._pairs(z)
        if self.training and not return_graph:
            p = self.graph_dropout
            return pool_sum(
                message, distances_as_dots(pairs), p, generator=generator
            ), None
        source, weight = self._neighbours(pairs, generator)
        neighbours = Neighbours(source, message.size(0))
        out = neighbour_sum(message, weight.to(message.dtype), neighbours)
        return out, neighbour_graph(
            source, weight, weight > 0
        ) if return_graph else None

    def _neighbours(
        self, pairs: PairScores, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Return the neighbours of each target, and their weights."""
        k = max(0, pairs.available)
        if not self.training:
            k = min(k, self.eval_k)
        if k == 0:
            source = torch.empty(pairs.dst.size(0), 0, dtype=torch.long)
            return source.to(pairs.dst.device), pairs.dst.new_empty(source.shape)
        exact = pairs.detach()
        src = exact.src.double()
        dst = src if exact.dst is exact.src else exact.dst.double()
        source = best_sources(distances_as_dots(exact._replace(dst=dst, src=src)), k)
        score = pairs.pairs(slice(None), Neighbours(source, pairs.src.size(0)))
        weight = score.softmax(dim=1)
        p = self.graph_dropout
        return source, dropout(weight, p, self.training, generator)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        state_dict, prefix = args[:2]
        for name in ('index_key', 'index_message'):
            kept = state_dict.get(f'{prefix}{name}')
            like = self.lin.weight
            kept = None if kept is None else torch.empty_like(kept).to(like)
            self.register_buffer(name, kept)
        super()._load_from_state_dict(*args, **kwargs)


def _periodic(
    num_columns: int, channels: int, num_frequencies: int, scale: float
) -> torch.nn.Module:
    try:
        from rtdl_num_embeddings import PeriodicEmbeddings
    except ImportError as error:
        raise ImportError(
            "'num_frequencies' needs rtdl_num_embeddings: pip install "
            "'rtdl_num_embeddings', or num_frequencies=0"
        ) from error
    module: torch.nn.Module = PeriodicEmbeddings(
        num_columns,
        channels,
        n_frequencies=num_frequencies,
        frequency_init_scale=scale,
        lite=True,
    )
    return module
