from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.typing import EdgeType, NodeType

from torch_geometric_gsl._checks import check_absent, check_option, check_probability
from torch_geometric_gsl.nn.conv.learned_graph_conv import COMPARED
from torch_geometric_gsl.nn.conv.typed_relations import (
    check_relations,
    check_widths,
    ends_of,
)
from torch_geometric_gsl.nn.models.follows_task import FollowsTask
from torch_geometric_gsl.nn.models.hetero_layers import Rows, StacksRelations
from torch_geometric_gsl.nn.models.layers import (
    layer_sizes,
    reset_activation,
    resolve_activation,
    run,
)
from torch_geometric_gsl.nn.models.reference import WatchesRows
from torch_geometric_gsl.nn.models.tasks import resolve_task
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.typing import SampledGraph

#: How several relations to one type become one, which leaves its width as it is.
AGGREGATIONS = ('sum', 'mean', 'min', 'max')


class HeteroGSLNet(WatchesRows, StacksRelations, FollowsTask):
    r"""The network of the `"Neural Gaussian Similarity Modeling for Differential
    Graph Structure Learning" <https://arxiv.org/abs/2312.09498>`_ paper for nodes of
    several types: layers that learn a graph for each relation between them, with an
    activation and dropout between the layers.

    .. math::
        \mathbf{H}_t^{(\ell + 1)} = \mathrm{Dropout} \left( \mathrm{ELU} \left(
        \mathrm{Conv}^{(\ell)} ( \{ \mathbf{H}_s^{(\ell)} \} )_t \right) \right)

    where :math:`\mathrm{Conv}` is a
    :class:`~torch_geometric_gsl.nn.conv.HeteroLatentGraphConv`. The last layer has
    neither activation nor dropout.

    A type that no relation leads to is never updated: it enters every layer with its
    input, through the projections that each relation has anyway.

    With a :obj:`target` the output is that of one type, and :meth:`loss`,
    :meth:`predict` and :meth:`score` are about its labels. Each layer has the relations
    alone that reach this type through the layers after it; a relation that is too many
    steps away takes part in none.

    With :obj:`compare="input"` the similarities of all layers see the features
    themselves. A relation has one similarity then, and each layer draws its graph anew.

    Args:
        in_channels (int or dict[str, int]): Size of each input sample, one for all
            types or by type; :obj:`-1` derives it from the first input to the forward
            method.
        hidden_channels (int): Size of each hidden sample.
        num_layers (int): The number of layers.
        out_channels (int): Size of each output sample.
        relations (list or dict): The relations, edge types
            :obj:`(source, name, target)`, or a dict from them to options of their own,
            as in :class:`~torch_geometric_gsl.nn.conv.HeteroLatentGraphConv`.
        target (str, optional): The type of the nodes that the model tells something
            of; if :obj:`None`, the output is a dict of all types that a relation leads
            to. (default: :obj:`None`)
        similarity (str or Similarity, optional): The similarity of a source and a
            target, by name; a module serves only where all layers are equally wide, and
            is shared by them and by all relations. (default: :obj:`"neural_gaussian"`)
        task (str, optional): What the model tells of a node of the target type, as in
            :class:`~torch_geometric_gsl.nn.GSLNet`. (default: :obj:`"classification"`)
        dropout (float, optional): Dropout probability of the hidden samples.
            (default: :obj:`0.5`)
        act (str, Callable or None, optional): The activation, or :obj:`None` for none.
            (default: :obj:`"elu"`)
        aggr (str, optional): What becomes of several relations to one type:
            :obj:`"sum"`, :obj:`"mean"`, :obj:`"min"` or :obj:`"max"`.
            (default: :obj:`"sum"`)
        compare (str, optional): What the similarities compare: the projected rows of
            each layer (:obj:`"projected"`), the network's input in all of them
            (:obj:`"input"`), of equal widths then, or an :obj:`embedding_dict` that
            each call gives (:obj:`"embedding"`). (default: :obj:`"projected"`)
        **kwargs (optional): Additional arguments of the layers, such as :obj:`k`,
            :obj:`tau`, :obj:`scale`, :obj:`similarity_kwargs` or :obj:`null_score`.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}_t|, F_t)` of each type, dense or
          sparse CSR, candidate edges :math:`(2, |\mathcal{E}_r|)` of each relation
          *(optional)*, batch vector :math:`(|\mathcal{V}_t|)` of each type *(optional)*
        - **output:** node features :math:`(|\mathcal{V}_t|, F_{out})` of the target
          type, or of each type that a relation leads to

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or no relation leads to the
            :obj:`target`.

    Example:
        >>> relations = [('word', 'in', 'document'), ('document', 'near', 'document')]
        >>> sizes = {'word': 8, 'document': 16}
        >>> model = HeteroGSLNet(sizes, 32, 2, 7, relations, target='document')
        >>> x_dict = {'word': torch.randn(50, 8), 'document': torch.randn(100, 16)}
        >>> model(x_dict).shape
        torch.Size([100, 7])
    """

    def __init__(
        self,
        in_channels: int | dict[NodeType, int],
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        relations: Any,
        target: NodeType | None = None,
        similarity: str | Similarity = 'neural_gaussian',
        *,
        task: str = 'classification',
        dropout: float = 0.5,
        act: Any = 'elu',
        aggr: str = 'sum',
        compare: str = 'projected',
        **kwargs: Any,
    ) -> None:
        super().__init__()
        sizes = layer_sizes(-1, hidden_channels, num_layers, out_channels)
        check_probability(dropout, 'dropout')
        check_option(aggr, AGGREGATIONS, 'aggr')
        check_option(compare, COMPARED, 'compare')
        resolve_task(task, out_channels)
        options = check_relations(relations)
        self.relations = list(options)
        self.node_types, self.target_types = ends_of(options)
        if target is not None:
            check_option(target, self.target_types, 'target')
        self.in_channels = check_widths(in_channels, self.node_types)
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.out_channels = out_channels
        self.target = target
        self.task = task
        self.dropout = dropout
        self.act = resolve_activation(act)
        self.compared = {r: own.get('compare', compare) for r, own in options.items()}
        if compare == 'input':
            width = kwargs.get('embedding_channels')
            check_absent(width, 'embedding_channels', "with compare='input'")
        kwargs |= {'similarity': similarity, 'aggr': aggr}
        if compare == 'embedding':
            kwargs['compare'] = compare
        options = {r: self._own_options(r, own) for r, own in options.items()}
        self.convs = self._make_layers(sizes, options, kwargs)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        reset_activation(self.act)
        for conv in self.convs:
            conv.reset_parameters()  # type: ignore[operator]

    def forward(
        self,
        x_dict: Rows,
        edge_index_dict: dict[EdgeType, Any] | None = None,
        edge_weight_dict: dict[EdgeType, Any] | None = None,
        batch_dict: dict[NodeType, Any] | None = None,
        *,
        context_dict: Rows | None = None,
        embedding_dict: dict[NodeType, Any] | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor | Rows:
        r"""Run the forward pass.

        Args:
            x_dict (dict[str, torch.Tensor]): The node features of each type.
            edge_index_dict (dict, optional): Edges of some relations, which alone are
                candidates there, or with :obj:`observed="prior"` a graph that is mixed
                with the learned one. (default: :obj:`None`)
            edge_weight_dict (dict, optional): The weights of edges that are given, a
                prior. (default: :obj:`None`)
            batch_dict (dict, optional): Sorted graph ids of each type.
                (default: :obj:`None`)
            context_dict (dict[str, torch.Tensor], optional): The rows of each type that
                are the sources in every layer; :obj:`x_dict` holds new rows then, of
                the target type. What else is given is a pair then, of the context and
                of the new rows; edges are those of the context, and those from it to
                new rows. (default: :obj:`None`)
            embedding_dict (dict, optional): What the similarities compare, if
                :obj:`compare` says so. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness of the
                graphs and of dropout; the global one if :obj:`None`.
                (default: :obj:`None`)

        Returns:
            torch.Tensor or dict[str, torch.Tensor]: The outputs of the target type, or
            of all types that a relation leads to.
        """
        listed = edge_index_dict, edge_weight_dict
        given = *listed, batch_dict, context_dict, embedding_dict
        is_alone = all(value is None for value in given)
        if is_alone and isinstance(x_dict, dict) and self.target in x_dict:
            self._watch(x_dict[self.target])
        x, args = self._last_layer(run, x_dict, *given, generator)
        out: Rows = run(self.convs[-1], x, args, generator)
        return out if self.target is None else out[self.target]

    def loss(
        self, x_dict: Rows, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        r"""Return the loss of the labelled nodes of the target type.

        Args:
            x_dict (dict[str, torch.Tensor]): The node features of each type.
            y (torch.Tensor): The labels of the nodes of the target type, as the
                :obj:`task` says.
            mask (torch.Tensor, optional): The labelled nodes, as a boolean mask or as
                indices; all nodes if :obj:`None`. (default: :obj:`None`)
            **kwargs (optional): Additional arguments of the forward method.

        Returns:
            torch.Tensor: The loss, a number.

        Raises:
            TypeError: If :obj:`y` or :obj:`mask` has the wrong type.
            ValueError: If the model has no :obj:`target`, no node is labelled, or a
                label is that of no class.
        """
        self._check_target()
        return self._label_loss(self(x_dict, **kwargs), y, mask)

    @torch.no_grad()
    def predict(self, x_dict: Rows, **kwargs: Any) -> Tensor:
        r"""Return what the model says of each node of the target type, without noise.

        Args:
            x_dict (dict[str, torch.Tensor]): The node features of each type.
            **kwargs (optional): Additional arguments of the forward method, such as a
                :obj:`context_dict`.

        Returns:
            torch.Tensor: By the :obj:`task`, as in
            :class:`~torch_geometric_gsl.nn.GSLNet`.
        """
        self._check_target()
        return self._task.predict(self._evaluated(x_dict, **kwargs))

    @torch.no_grad()
    def score(
        self, x_dict: Rows, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> dict[str, float]:
        r"""Return how good predictions are, by the name of the :obj:`task`'s metric.

        Args:
            x_dict (dict[str, torch.Tensor]): The node features of each type.
            y (torch.Tensor): The labels of the nodes of the target type.
            mask (torch.Tensor, optional): The nodes that count, as a boolean mask or as
                indices; all nodes if :obj:`None`. (default: :obj:`None`)
            **kwargs (optional): Additional arguments of the forward method.

        Returns:
            dict[str, float]: The score, of which larger is better.
        """
        self._check_target()
        return self._scored(self._evaluated(x_dict, **kwargs), y, mask)

    def graphs(
        self,
        x_dict: Rows,
        edge_index_dict: dict[EdgeType, Any] | None = None,
        edge_weight_dict: dict[EdgeType, Any] | None = None,
        batch_dict: dict[NodeType, Any] | None = None,
        *,
        context_dict: Rows | None = None,
        embedding_dict: dict[NodeType, Any] | None = None,
        generator: torch.Generator | None = None,
    ) -> list[dict[EdgeType, SampledGraph]]:
        r"""Return the graph of each relation, layer by layer.

        Args:
            x_dict (dict[str, torch.Tensor]): The node features of each type.
            edge_index_dict (dict, optional): Candidates. (default: :obj:`None`)
            edge_weight_dict (dict, optional): The weights of edges that are given, a
                prior. (default: :obj:`None`)
            batch_dict (dict, optional): Sorted graph ids. (default: :obj:`None`)
            context_dict (dict[str, torch.Tensor], optional): The rows that are the
                sources. (default: :obj:`None`)
            embedding_dict (dict, optional): What the similarities compare.
                (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)

        Returns:
            list[dict[tuple[str, str, str], SampledGraph]]: The edges and their weights.
        """
        listed = edge_index_dict, edge_weight_dict
        given = *listed, batch_dict, context_dict, embedding_dict
        graphs: list[dict[EdgeType, SampledGraph]] = []
        call = partial(run, graphs=graphs)
        x, args = self._last_layer(call, x_dict, *given, generator)
        last: Any = self.convs[-1]
        return [*graphs, last.graphs(x, **args, generator=generator)]

    def _check_target(self) -> None:
        if self.target is None:
            raise ValueError(
                "'target' must be the type of nodes that labels belong to (got None)"
            )

    def __repr__(self) -> str:
        text = (
            f'{self.__class__.__name__}({self.in_channels}, {self.hidden_channels}, '
            f'num_layers={self.num_layers}, out_channels={self.out_channels}, '
            f'relations={self.relations}, target={self.target!r}'
        )
        if self.task != 'classification':
            text += f', task={self.task!r}'
        return f'{text})'
