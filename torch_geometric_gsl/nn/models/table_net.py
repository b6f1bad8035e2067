from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn.inits import reset

from torch_geometric_gsl._checks import (
    check_absent,
    check_count,
    check_ends,
    check_features,
    check_option,
    check_parameter_match,
    check_probability,
)
from torch_geometric_gsl.nn.embeddings import ColumnEncoder, LabelEmbedding
from torch_geometric_gsl.nn.models.row_index import (
    RowIndexMixin,
    evaluation_at_full_precision,
)
from torch_geometric_gsl.nn.models.saved_model import SavedModel
from torch_geometric_gsl.nn.models.table_parts import (
    ResidualBlock,
    RowMask,
    TableNeighbours,
)
from torch_geometric_gsl.nn.shared_module import keep_state
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.distance_similarity import DistanceSimilarity
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops.edges import empty_graph
from torch_geometric_gsl.ops.runtime import check_not_batched, row_blocks
from torch_geometric_gsl.ops.sparse_rows import rows_between
from torch_geometric_gsl.typing import Features, PairGraph, SampledGraph

# Rows encoded at once without gradients.
_BLOCK = 2**14


class TableNet(RowIndexMixin, SavedModel):
    r"""Network for the rows of a table, with the labels of neighbours as messages.

    .. math::
        \mathbf{h}^{\prime}_i = \mathbf{h}_i + \sum_{j \neq i}
        \mathrm{softmax}_j(- \lambda \lVert \mathbf{z}_i - \mathbf{z}_j \rVert^2)
        \, (\mathbf{h}_j \mathbf{W}_v + y_j \mathbf{W}_y + \mathbf{b})

    where :math:`\mathbf{h}_i` is a linear map of the columns and of periodic
    embeddings of them, from the `"On Embeddings for Numerical Features in Tabular Deep
    Learning" <https://arxiv.org/abs/2203.05556>`_ paper, and :math:`\mathbf{z}_i` a
    projection of it, as in the `"TabR: Tabular Deep Learning Meets Nearest Neighbors"
    <https://arxiv.org/abs/2307.14338>`_ paper. Residual blocks and a linear map turn
    :math:`\mathbf{h}^{\prime}_i` into the output.

    A row never sees its own label: in one tensor rows are not their own neighbours, and
    in a pair :obj:`(x_src, x_dst)` sources and targets must be different rows. In
    training mode the sum runs over all sources, or over :obj:`draws` relaxed draws,
    distributed as in :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler`; in
    evaluation mode over the :obj:`eval_k` nearest, with weights that sum to 1.

    Args:
        in_channels (int): The number of columns.
        hidden_channels (int): The number of hidden units.
        out_channels (int): The number of classes, or of target columns.
        graph (str, optional): The graph: :obj:`"learned"`, or :obj:`"none"` for a
            network without neighbours. (default: :obj:`"learned"`)
        similarity (str or Similarity, optional): The similarity of two rows.
            (default: :obj:`"distance"`)
        key_channels (int, optional): Size of the compared keys; half of the hidden
            units if :obj:`None`. (default: :obj:`None`)
        num_blocks (int, optional): The number of residual blocks. (default: :obj:`2`)
        act (str, optional): The activation of the blocks. (default: :obj:`"mish"`)
        num_frequencies (int, optional): The number of frequencies of each column; 0
            disables periodic embeddings. (default: :obj:`8`)
        periodic_columns (list[int], optional): The columns with periodic embeddings;
            all if :obj:`None`. (default: :obj:`None`)
        frequency_scale (float, optional): The standard deviation of the initial
            frequencies. (default: :obj:`0.1`)
        embedding_channels (int, optional): Size of the periodic embedding of a column.
            (default: :obj:`3`)
        dropout (float, optional): Dropout probability in the residual blocks.
            (default: :obj:`0.2`)
        graph_dropout (float, optional): Dropout probability of the weights, without
            :obj:`draws`. (default: :obj:`0.2`)
        draws (int, optional): The number of relaxed draws in training; if
            :obj:`None`, the sum runs over all sources. (default: :obj:`None`)
        eval_k (int, optional): The number of neighbours in evaluation mode.
            (default: :obj:`96`)
        null_score (float, optional): If given, the initial score of a null neighbour,
            which sends nothing; it is learned. (default: :obj:`None`)

    Shapes:
        - **input:** columns :math:`(N, F_{in})`, dense, or sparse CSR without periodic
          embeddings, or a pair of them, for :math:`N` sources and :math:`n` targets;
          labels of the sources, classes :math:`(N)` or numbers
          :math:`(N, F_{out})`
        - **output:** :math:`(n, F_{out})`

    Raises:
        ImportError: If there are frequencies, and rtdl_num_embeddings is not installed.

    Example:
        >>> x, y = torch.randn(100, 8), torch.randn(100)
        >>> net = TableNet(8, 32, 1, num_frequencies=0)
        >>> net(x, y).shape  # Each row attends to all others.
        torch.Size([100, 1])
        >>> new = net.eval().index(x, y)(torch.randn(3, 8))
        >>> new.shape
        torch.Size([3, 1])
    """

    index_key: Tensor | None
    index_message: Tensor | None
    _INDEXED = 'message', 'key'

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        graph: str = 'learned',
        similarity: str | Similarity = 'distance',
        key_channels: int | None = None,
        num_blocks: int = 2,
        act: str = 'mish',
        num_frequencies: int = 8,
        periodic_columns: Sequence[int] | None = None,
        frequency_scale: float = 0.1,
        embedding_channels: int = 3,
        dropout: float = 0.2,
        graph_dropout: float = 0.2,
        draws: int | None = None,
        eval_k: int = 96,
        null_score: float | None = None,
    ) -> None:
        super().__init__()
        check_count(in_channels, 'in_channels')
        check_count(hidden_channels, 'hidden_channels')
        check_count(out_channels, 'out_channels')
        check_count(num_blocks, 'num_blocks', minimum=0)
        check_option(graph, ('learned', 'none'), 'graph')
        check_probability(dropout, 'dropout')
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.graph = graph
        self.dropout = dropout
        self.encoder = ColumnEncoder(
            in_channels,
            hidden_channels,
            num_frequencies,
            periodic_columns,
            frequency_scale,
            embedding_channels,
        )
        if key_channels is None:
            key_channels = max(1, hidden_channels // 2)
        check_count(key_channels, 'key_channels')
        compared = resolve_similarity(similarity, key_channels)
        is_distance = isinstance(compared, DistanceSimilarity)
        neighbours = TableNeighbours(  # Checks its options for any graph.
            compared,
            draws=draws,
            graph_dropout=graph_dropout,
            eval_k=eval_k,
            null_score=null_score,
            # Cosines lie in [-1, 1], and need a scale for a sharp graph.
            initial_scale=1.0 if is_distance else 10.0,
        )
        if graph == 'learned':
            self.lin_value = torch.nn.Linear(
                hidden_channels, hidden_channels, bias=False
            )
            self.label = LabelEmbedding(out_channels, hidden_channels)
            self.neighbours = neighbours
            self.norm = torch.nn.LayerNorm(hidden_channels)
            self.lin_key = torch.nn.Linear(hidden_channels, key_channels)
        self.blocks = torch.nn.ModuleList(
            ResidualBlock(hidden_channels, act, dropout) for _ in range(num_blocks)
        )
        self.head_norm = torch.nn.LayerNorm(hidden_channels)
        self.head = torch.nn.Linear(hidden_channels, out_channels)
        with keep_state(similarity):
            self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module; delete the index."""
        for module in self.children():
            reset(module)
        self._store_index()

    def forward(
        self,
        x: Features,
        y: Tensor | None = None,
        *,
        batch: Tensor | None = None,
        group: Tensor | None = None,
        order: Tensor | None = None,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> Tensor | tuple[Tensor, SampledGraph]:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The rows, or a pair
                :obj:`(x_src, x_dst)` of neighbours and of rows to predict. With an
                index, a tensor without labels holds new rows.
            y (torch.Tensor, optional): The labels of the sources, -1 or NaN where
                unknown; all unknown if :obj:`None`. (default: :obj:`None`)
            batch (torch.Tensor, optional): Sorted numbers of the rows of a tensor:
                those of the same number see each other. (default: :obj:`None`)
            group (torch.Tensor, optional): Groups of the rows of a tensor: those of
                the same group do not see each other. (default: :obj:`None`)
            order (torch.Tensor, optional): Numbers of the rows of a tensor: each sees
                those of a lower number. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)
            return_graph (bool, optional): If :obj:`True`, also returns the graph that
                this call summed over. (default: :obj:`False`)
        """
        check_not_batched(self, (x, y), self.parameters())
        x_src, x_dst, _ = check_ends(x, self.in_channels)
        check_parameter_match(x_src, self.head.weight)
        h = self.encoder(x_dst)
        graph = None
        row_mask = RowMask(batch, group, order)
        if self.graph != 'none':
            is_one_set = x_dst is x_src
            is_new = y is None and isinstance(x, Tensor)
            dst_key = self._key(h)
            key = self.index_key
            message = self._indexed(x, None, checks_num_rows=False) if is_new else None
            if message is None:
                h_src = h if is_one_set else self.encoder(x_src)
                key = dst_key if is_one_set else self._key(h_src)
                message = self._message(h_src, y)
            elif key is not None:
                dst_key = dst_key.to(key.dtype)  # Lower under autocast.
            if key is dst_key:
                row_mask.check(x_dst)
            else:
                for name, value in row_mask._asdict().items():
                    check_absent(value, name, 'unless all rows are one tensor')
            total, graph = self.neighbours(
                dst_key if key is dst_key else (key, dst_key),
                message,
                row_mask=None if row_mask == RowMask() else row_mask,
                generator=generator,
                return_graph=return_graph,
            )
            if self.neighbours.sampler.training:
                self.neighbours.sampler.await_gradient(total)
            if graph is not None and key is not dst_key:
                graph = PairGraph(*graph)
            h = h + self._project(total)
        out = self._output(h, generator)
        return (out, graph or empty_graph(out)) if return_graph else out

    def index(self, x: Tensor, y: Tensor | None = None) -> TableNet:
        r"""Compute the keys and messages of rows, the sources of later calls in
        evaluation mode, and keep them.

        Such a call holds new rows, unless it passes a pair or labels. Keys and messages
        are computed here, without gradients and in the precision of the parameters:
        later changes of parameters do not update them. They are part of the
        :obj:`state_dict`, of saved models and of copies. :meth:`clear_index`,
        :meth:`train`, :meth:`reset_parameters` and a loaded :obj:`state_dict` delete
        them; the latter brings its own.

        Args:
            x (torch.Tensor): The rows.
            y (torch.Tensor, optional): Their labels. (default: :obj:`None`)

        Returns:
            TableNet: The model itself.
        """
        check_features(x, width=self.in_channels)
        check_parameter_match(x, self.head.weight)
        if self.graph == 'none':
            return self
        size = x.size(0)
        if y is not None:
            self.label.encode(y, size)  # Raises before anything is computed.
        with evaluation_at_full_precision(self, x) as model:
            like = model.head.weight
            key = like.new_empty(size, model.lin_key.out_features)
            width = self.hidden_channels + self.out_channels + 1
            message = like.new_empty(size, width)
            for rows in row_blocks(size, 1, _BLOCK):
                h = model.encoder(rows_between(x, rows.start, rows.stop))
                key[rows] = model._key(h)
                message[rows] = model._message(h, None if y is None else y[rows])
        self._store_index(copies=False, key=key, message=message)
        return self

    def _store_index(self, **options: Any) -> None:
        super()._store_index(**options)
        self._prepare()

    def _prepare(self) -> None:
        if self.graph != 'none':
            self.neighbours.prepare(self.index_key)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        self._prepare()  # The index may be on another device.
        return self

    def _encode(self, x: Tensor) -> Tensor:
        """Check rows, and compute their hidden units before the sum."""
        check_features(x, width=self.in_channels)
        check_parameter_match(x, self.head.weight)
        h: Tensor = self.encoder(x)
        return h

    def _key(self, h: Tensor) -> Tensor:
        """Return the compared keys of rows."""
        key: Tensor = self.lin_key(self.norm(h))
        return key

    def _message(self, h: Tensor, y: Tensor | None) -> Tensor:
        """Concatenate hidden units and labels: messages before their projection."""
        if y is None:
            return F.pad(h, (0, self.out_channels + 1))
        return torch.cat([h, self.label.encode(y, h.size(0)).to(h.dtype)], dim=1)

    def _project(self, total: Tensor) -> Tensor:
        """Project the sums of messages, of which there are fewer than messages."""
        h, label = total.split([self.hidden_channels, self.out_channels + 1], dim=1)
        out: Tensor = self.lin_value(h)
        return out + self.label.project(label)

    def _output(self, h: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Compute the output from hidden units."""
        for block in self.blocks:
            h = block(h, generator)
        out: Tensor = self.head(F.relu(self.head_norm(h)))
        return out

    def keys(self, x: Tensor) -> Tensor:
        r"""Compute the keys :math:`\mathbf{z}_i` by which rows are compared.

        Args:
            x (torch.Tensor): The rows.
        """
        return self._key(self._encode(x))

    def without_neighbours(self, x: Tensor) -> Tensor:
        r"""Compute the output of new rows with the mean of all indexed messages in
        place of the sum over neighbours, which then tell nothing about a row.

        Args:
            x (torch.Tensor): The rows.
        """
        h = self._encode(x)
        if self.index_message is not None:
            h = h + self._project(self.index_message.mean(dim=0, keepdim=True))
        return self._output(h)

    def distance_to_sources(self, x: Tensor) -> Tensor:
        r"""Compute :math:`- \lambda \max_j \phi(z_i, z_j)` of new rows.

        With the default similarity this is the scaled squared distance to the nearest
        indexed row.

        Args:
            x (torch.Tensor): The rows.
        """
        if self.index_key is None:
            raise ValueError("'x' needs indexed rows: call 'index' before (got none)")
        keys = self.index_key, self.keys(x).to(self.index_key.dtype)
        return self.neighbours.distance(keys)

    def with_distance(self, x: Tensor) -> tuple[Tensor, Tensor]:
        r"""Compute the output of new rows in evaluation mode, and their
        :meth:`distance_to_sources`, by one search.

        Args:
            x (torch.Tensor): The rows.
        """
        if self.index_key is None or self.index_message is None:
            raise ValueError("'x' needs indexed rows: call 'index' before (got none)")
        h = self._encode(x)
        keys = self.index_key, self._key(h).to(self.index_key.dtype)
        total, distance = self.neighbours.sum_and_distance(keys, self.index_message)
        return self._output(h + self._project(total)), distance

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._prepare()  # The state may have been assigned, not copied.

    def __repr__(self) -> str:
        sizes = f'{self.in_channels}, {self.hidden_channels}, {self.out_channels}'
        return f"{type(self).__name__}({sizes}, graph='{self.graph}')"
