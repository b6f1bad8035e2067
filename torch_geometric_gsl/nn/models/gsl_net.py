from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch_geometric.nn.dense.linear import is_uninitialized_parameter
from torch_geometric.nn.resolver import aggregation_resolver

from torch_geometric_gsl._checks import (
    as_pair,
    check_absent,
    check_batch,
    check_compared,
    check_edge_index,
    check_edge_weight,
    check_features,
    check_matrix,
    check_num_nodes,
    check_one_type,
    check_pair,
    check_parameter_match,
    split_pair,
)
from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.learned_graph_conv import compared_width
from torch_geometric_gsl.nn.conv.multiplex_latent_graph_conv import (
    MultiplexLatentGraphConv,
)
from torch_geometric_gsl.nn.conv.transition_graph_conv import TransitionGraphConv
from torch_geometric_gsl.nn.conv.transition_nodes import (
    KeepsAnchors,
    check_transition_nodes,
)
from torch_geometric_gsl.nn.models.base import NodeClassifier
from torch_geometric_gsl.nn.models.layers import (
    Dropout,
    layer_sizes,
    reset_activation,
    resolve_activation,
)
from torch_geometric_gsl.nn.models.row_index import IndexesRows
from torch_geometric_gsl.nn.models.tasks import resolve_task
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.sampler.options import (
    PAPER,
    LayerOptions,
    SamplerOptions,
    check_options,
)
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.runtime import is_exporting
from torch_geometric_gsl.typing import Batch, Features, SampledGraph

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The arguments of layers beside their rows.
Arguments = dict[str, Any]


class GSLNet(KeepsAnchors, IndexesRows, NodeClassifier):
    r"""The network of the `"Neural Gaussian Similarity Modeling for Differential
    Graph Structure Learning" <https://arxiv.org/abs/2312.09498>`_ paper: layers that
    learn their own graph, with an activation and dropout between them.

    .. math::
        \mathbf{H}^{(\ell + 1)} = \mathrm{Dropout} \left( \mathrm{ELU} \left(
        \mathrm{Conv}^{(\ell)} ( \mathbf{H}^{(\ell)} ) \right) \right)

    where :math:`\mathrm{Conv}` is a
    :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`, or a
    :class:`~torch_geometric_gsl.nn.conv.TransitionGraphConv` if
    :obj:`num_transition_nodes` is given (the paper's models with the suffix -T).
    The last layer has neither activation nor dropout.

    Transition nodes that are :obj:`"free"` or :obj:`"anchors"` serve new rows and
    mini-batches of any number of rows. :meth:`choose_anchors` keeps rows
    :math:`\mathbf{A}^{(0)}` of the input; the network runs on them beside those of a
    call, and their hidden rows :math:`\mathbf{A}^{(\ell)}` are the anchors of the later
    layers.

    With :obj:`z_channels` all layers compare the same rows by one sampler: :obj:`z` of
    the call, or the features :math:`\mathbf{X}` themselves. It has few parameters, and
    each layer draws its graph anew.

    New rows join others as a pair :obj:`(x_src, x_dst)`: in every layer the sources see
    each other, and the targets see the sources alone. :meth:`index` keeps the sources,
    whose hidden rows are computed once.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive the size
            from the first input to the forward method.
        hidden_channels (int): Size of each hidden sample.
        num_layers (int): The number of layers.
        out_channels (int): Size of each output sample.
        similarity (str or Similarity, optional): The similarity of two nodes, by
            name; a module serves only where all layers are equally wide, and is
            shared by them. (default: :obj:`"neural_gaussian"`)
        num_transition_nodes (int, optional): The number of transition nodes; if
            :obj:`None`, the graph joins all nodes. (default: :obj:`None`)
        num_nodes (int, optional): The number of nodes, needed with
            :obj:`num_transition_nodes` that are :obj:`"projected"`.
            (default: :obj:`None`)
        transition (str, optional): How transition nodes come about:
            :obj:`"projected"` (the paper), :obj:`"free"` or :obj:`"anchors"`, as in
            :class:`~torch_geometric_gsl.nn.conv.TransitionGraphConv`.
            (default: :obj:`"projected"`)
        dropout (float, optional): Dropout probability of the hidden samples.
            (default: :obj:`0.5`)
        act (str, Callable or None, optional): The activation, or :obj:`None` for none.
            (default: :obj:`"elu"`)
        z_channels (int, optional): The width of the rows that all layers compare in
            place of their projections: :obj:`z` of the call, or :math:`\mathbf{X}`
            where it is not given; :obj:`-1` is that of the input.
            (default: :obj:`None`)
        task (str, optional): What the model tells of a node, which :meth:`loss`,
            :meth:`predict` and :meth:`score` follow: a class (:obj:`"classification"`),
            numbers (:obj:`"regression"`, the squared error), one yes or no
            (:obj:`"binary"`, of one output), or one for each output
            (:obj:`"multilabel"`). (default: :obj:`"classification"`)
        readout (str or Aggregation, optional): What makes one output of all nodes of a
            graph, as :func:`~torch_geometric.nn.resolver.aggregation_resolver` knows
            it, such as :obj:`"mean"`; labels are those of graphs then.
            (default: :obj:`None`)
        num_relations (int, optional): If given, the number of graphs of each layer, a
            :class:`~torch_geometric_gsl.nn.conv.MultiplexLatentGraphConv`.
            (default: :obj:`None`)
        **kwargs (optional): Additional arguments of the layers, such as :obj:`k`,
            :obj:`tau`, :obj:`similarity_kwargs`, :obj:`root_weight`,
            :obj:`null_score`, or :obj:`observed`, which tells what the
            :obj:`edge_index` of a call is: :obj:`"candidates"`, or a :obj:`"prior"` to
            mix with a learned graph.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})`, dense or sparse
          CSR, candidate edges :math:`(2, |\mathcal{E}_c|)` *(optional)*, batch vector
          :math:`(|\mathcal{V}|)` *(optional)*, compared rows
          :math:`(|\mathcal{V}|, F_z)` *(optional)*; each may be a pair, of sources and
          targets
        - **output:** node features :math:`(|\mathcal{V}|, F_{out})` of the targets

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or only one of
            :obj:`num_transition_nodes` and :obj:`num_nodes` is given where they go
            together.

    Example:
        >>> model = GSLNet(16, 32, num_layers=2, out_channels=7)
        >>> model(torch.randn(100, 16)).shape
        torch.Size([100, 7])
        >>> # The cosine of the features refines a given graph.
        >>> options = {'z_channels': -1, 'scale': 20.0, 'null_score': 5.0}
        >>> model = GSLNet(16, 32, 2, 7, 'linear', **options)
        >>> model(torch.randn(100, 16), torch.randint(100, (2, 400))).shape
        torch.Size([100, 7])
    """

    _INDEXED = 'x', 'edge_index', 'edge_weight', 'z'
    _hidden_sources: tuple[Any, list[Tensor], list[Tensor]] | None = None

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        similarity: str | Similarity = 'neural_gaussian',
        num_transition_nodes: int | None = None,
        num_nodes: int | None = None,
        *,
        transition: str = 'projected',
        dropout: float = 0.5,
        act: Any = 'elu',
        z_channels: int | None = None,
        task: str = 'classification',
        readout: Any = None,
        num_relations: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__()
        sizes = layer_sizes(in_channels, hidden_channels, num_layers, out_channels)
        check_transition_nodes(num_transition_nodes, num_nodes, transition)
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.out_channels = out_channels
        self.num_transition_nodes = num_transition_nodes
        self.num_nodes = num_nodes
        self.transition = transition
        self._await_anchors()
        self.dropout = Dropout(dropout)
        self.act = resolve_activation(act)
        self.task = task
        resolve_task(task, out_channels)
        self.readout = None if readout is None else aggregation_resolver(readout)
        self.z_channels = compared_width(z_channels, in_channels)
        self.num_relations = num_relations
        self.convs = self._make_layers(sizes, {'similarity': similarity, **kwargs})
        self.reset_parameters()

    @classmethod
    def paper(
        cls,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        similarity: str | Similarity = 'neural_gaussian',
        **kwargs: Any,
    ) -> GSLNet:
        r"""Return the printed model: draws with loops at :obj:`tau=0.25` and
        :obj:`scale=1`, ELU, and sums over all nodes in evaluation mode.

        Args:
            in_channels (int): As in the constructor, as are all others.
            hidden_channels (int): Size of each hidden sample.
            num_layers (int): The number of layers.
            out_channels (int): Size of each output sample.
            similarity (str or Similarity, optional): The similarity of two nodes.
                (default: :obj:`"neural_gaussian"`)
            **kwargs (optional): Other arguments of the constructor.

        Example:
            >>> GSLNet.paper(16, 32, 2, 7)(torch.randn(100, 16)).shape
            torch.Size([100, 7])
        """
        sizes = in_channels, hidden_channels, num_layers, out_channels
        return cls(*sizes, similarity, **{'act': 'elu', **PAPER, **kwargs})

    def _make_layers(
        self, sizes: list[tuple[int, int]], options: Arguments
    ) -> torch.nn.ModuleList:
        """Return the layers; where all compare the same rows, they share a sampler."""
        conv: Any = LatentGraphConv
        own: Arguments = {'z_channels': self.z_channels}
        own['num_relations'] = self.num_relations
        if self.num_transition_nodes is not None:
            conv = TransitionGraphConv
            for name in ('num_nodes', 'transition', 'num_transition_nodes'):
                own[name] = getattr(self, name)
        elif self.num_relations is not None:
            conv = MultiplexLatentGraphConv
        _, _, *names = signature(conv).parameters
        known = {*names, *SamplerOptions.__annotations__} - {'label_channels'}
        options |= _given(own)
        for name in {*own} - known:
            check_absent(own[name], name, 'with transition nodes')
        check_options(type(self), options, known)
        layers = torch.nn.ModuleList(conv(*size, **options) for size in sizes)
        if self.z_channels is not None:
            for layer in layers[1:]:
                layer.share_sampler(layers[0])  # type: ignore[operator]
        return layers

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        self._hidden_sources = None  # PyG changes values without a trace.
        reset_activation(self.act)
        if self.readout is not None:
            self.readout.reset_parameters()
        for conv in self.convs:
            conv.reset_parameters()  # type: ignore[operator]

    def forward(
        self,
        x: Features,
        edge_index: Features | None = None,
        edge_weight: Features | None = None,
        batch: Batch | None = None,
        *,
        z: Features | None = None,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> Tensor | tuple[Tensor, list[Any]]:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The node features,
                dense or sparse CSR, or a pair :obj:`(x_src, x_dst)`. What else is given
                of a pair is a pair, too. Where rows are indexed, a tensor holds new
                rows in evaluation mode, unless graph ids are given.
            edge_index (torch.Tensor or tuple, optional): If given, only these edges are
                candidates, or with :obj:`observed="prior"` a graph that is mixed with
                the learned one; of a pair those between sources, and those from
                sources to targets. (default: :obj:`None`)
            edge_weight (torch.Tensor or tuple, optional): Their weights, not negative:
                a prior of the choice, whose logarithm is added to the scores; an
                observed graph has these weights. (default: :obj:`None`)
            batch (torch.Tensor or tuple, optional): Sorted graph ids of the nodes.
                (default: :obj:`None`)
            z (torch.Tensor or tuple[torch.Tensor, torch.Tensor], optional): The rows
                that all layers compare, with :obj:`z_channels`. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness of the
                graphs and of dropout; the global one if :obj:`None`.
                (default: :obj:`None`)
            return_graph (bool, optional): If :obj:`True`, returns the graph of each
                layer that this call summed over as well, such as for a regularizer of
                :mod:`torch_geometric_gsl.ops.regularizers`; of several relations a
                list. (default: :obj:`False`)
        """
        check_one_type(x)
        given = edge_index, edge_weight, batch, z, generator, return_graph
        out, graphs = self._run(x, *given)
        return (out, [graph for graph, _ in graphs]) if return_graph else out

    def graphs(self, *args: Any, **kwargs: Any) -> list[SampledGraph]:
        r"""Return the graph of each layer over which :meth:`forward` sums.

        Args:
            *args (optional): The arguments of :meth:`forward`.
            **kwargs (optional): Its keyword arguments.

        Returns:
            list[SampledGraph]: The edges and their weights, layer by layer; those of
            several relations are mixed by their shares.
        """
        layers: list[Any] = list(self.convs)
        kwargs |= {'return_graph': True}
        _, graphs = self._run(*args, **kwargs)
        return [
            conv.mix(graph, rows) if isinstance(graph, list) else graph
            for conv, (graph, rows) in zip(layers, graphs, strict=True)
        ]

    def _run(
        self,
        x: Features,
        edge_index: Any = None,
        edge_weight: Any = None,
        batch: Any = None,
        z: Any = None,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> tuple[Tensor, list[tuple[Any, Features]]]:
        """Run all layers; return graphs, if wanted, with the rows of their layers."""
        (src, dst), own, args = self._inputs(x, edge_index, edge_weight, batch, z)
        hidden = self._indexed_layers() if self._is_cached(x, src) else None
        graphs: list[tuple[Any, Features]] = []
        last = self.num_layers - 1
        how = {'generator': generator, 'return_graph': return_graph}
        for number, conv in enumerate(self.convs):
            rows: Features = dst if src is None else (src, dst)
            if src is not None and number < last:
                if hidden is None:
                    src = self._hidden(conv, src, own, generator)
                else:
                    src = hidden[number]
            out: Any = conv(rows, **args, **how)
            if return_graph:
                out, graph = out
                graphs.append((graph, rows))
            dst = out if number == last else self.dropout(self.act(out), generator)
        return self._read(dst, batch), graphs

    def _hidden(
        self,
        conv: Any,
        src: Tensor,
        own: Arguments,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the sources of the next layer."""
        rows = (src, src) if self.transition == 'anchors' else src
        out = self.act(conv(rows, **own, generator=generator))
        hidden: Tensor = self.dropout(out, generator)
        return hidden

    def _inputs(
        self, x: Any, edge_index: Any, edge_weight: Any, batch: Any, z: Any
    ) -> tuple[tuple[Any, Any], Arguments, Arguments]:
        """Return sources and targets, and the arguments of layers for both."""
        self._check_z(z)
        is_given = z is not None
        z = x if z is None and self.z_channels is not None else z
        own = dict.fromkeys(('edge_index', 'edge_weight', 'batch', 'z'))
        args = {'edge_index': edge_index, 'edge_weight': edge_weight}
        args |= {'batch': batch, 'z': z}
        is_pair = isinstance(x, tuple | list)
        src, dst = (
            check_pair(x, self.in_channels) if is_pair else (self._sources(x, batch), x)
        )
        if is_pair:
            pairs = {name: split_pair(value, name) for name, value in args.items()}
            own = {name: pair[0] for name, pair in pairs.items()}
            # Edges lead from the sources alone; of the rest layers see both.
            for name in ('edge_index', 'edge_weight'):
                args[name] = pairs[name][1]
        elif src is not None and self.transition == 'projected':
            if self.z_channels is not None and is_given != (
                self._kept('z') is not None
            ):
                which = 'the new' if is_given else 'the indexed'
                raise ValueError(
                    f"'z' must be given both to 'index' and with new rows, or to "
                    f'neither (got that of {which} rows alone)'
                )
            own = own | self._kept_arguments()
            args['z'] = None if z is None else (own['z'], z)
        if self.num_transition_nodes is not None:
            check_absent(edge_index, 'edge_index', 'with transition nodes')
            check_absent(edge_weight, 'edge_weight', 'with transition nodes')
            if batch is not None:
                if self.readout is None or self.transition == 'projected':
                    check_absent(batch, 'batch', 'with transition nodes')
                check_matrix(dst)
                check_batch(as_pair(batch, 'batch')[1], dst)
                own['batch'] = args['batch'] = None
        return (src, dst), _given(own), _given(args)

    def _check_z(self, z: Any) -> None:
        if z is not None and self.z_channels is None:
            raise ValueError("'z' needs a model with 'z_channels' (got None)")

    def _sources(self, x: Any, batch: Any) -> Tensor | None:
        """Return the rows that the rows of a call join, None for these themselves."""
        if self.transition == 'anchors':
            return self._anchor_rows(None)
        if self.transition == 'free':
            return None
        return self._indexed(x, batch, is_watched=self.readout is None)

    def index(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        *,
        z: Tensor | None = None,
    ) -> GSLNet:
        r"""Keep a copy of rows, the sources of later calls in evaluation mode.

        Such a call holds new rows, unless it gives a pair or graph ids; edges lead from
        the indexed rows to new ones. The rows are part of :obj:`state_dict`, of saved
        models and of copies; :meth:`clear_index` drops them. Their hidden rows are
        computed once, and again after a change of the parameters; no gradient reaches
        the parameters through them.

        Args:
            x (torch.Tensor): The rows, dense or sparse CSR.
            edge_index (torch.Tensor, optional): Edges between them, as in
                :meth:`forward`. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): Their weights. (default: :obj:`None`)
            z (torch.Tensor, optional): The rows that all layers compare.
                (default: :obj:`None`)

        Returns:
            GSLNet: The model itself.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If the rows have the wrong width or number, or new rows need no
                others.
        """
        check_features(x, width=self.in_channels)
        if self.transition != 'projected':
            raise ValueError(
                f'rows cannot be indexed with transition={self.transition!r}: new rows '
                'need no others (got rows)'
            )
        if self.num_nodes is not None:
            check_num_nodes(x, self.num_nodes)
        check_parameter_match(x, next(self.parameters()))
        self._check_z(z)
        if edge_index is not None:
            check_edge_index(edge_index, x, x)
        if edge_weight is not None:
            check_edge_weight(edge_weight, edge_index, x)
        if z is not None:
            check_compared(z, self.z_channels or 0, x.size(0))
        self._keep(x=x, edge_index=edge_index, edge_weight=edge_weight, z=z)
        return self

    def _keep(self, **rows: Tensor | None) -> None:
        super()._keep(**rows)
        self._hidden_sources = None

    def _kept_arguments(self) -> Arguments:
        """Return what is kept of the rows beside them."""
        own = {name: self._kept(name) for name in self._INDEXED[1:]}
        if self.z_channels is not None and own['z'] is None:
            own['z'] = self._kept('x')
        return own

    def _is_cached(self, x: Features, src: Tensor | None) -> bool:
        if torch.compiler.is_compiling() or is_exporting():
            return False
        is_index = src is not None and self.transition == 'projected'
        is_index &= not isinstance(x, tuple | list)
        parameters = [*self.parameters()]
        is_index &= not any(map(is_uninitialized_parameter, parameters))
        is_index &= not any(map(is_functorch_wrapped_tensor, parameters))
        # Not where a part is still random, such as dropout to see how sure a model is.
        return is_index and not any(m.training for m in self.modules())

    def _indexed_layers(self) -> list[Tensor]:
        """Return the hidden rows of the index, computed anew after a change."""
        device = next(self.parameters()).device.type
        is_autocast = torch.is_autocast_enabled(device)
        options = [
            (repr(m), m.num_nearest, m.loop)
            for m in self.modules()
            if isinstance(m, GumbelKNNSampler)
        ]
        rows = [
            kept._version for n in self._INDEXED if (kept := self._kept(n)) is not None
        ]
        key = is_autocast and torch.get_autocast_dtype(device), options, rows
        # By their values: optimizers may write where no counter notices.
        values: list[Tensor] = [*self.parameters()]
        found = self._hidden_sources
        if found is None or found[0] != key or not _are_equal(found[1], values):
            own, src = _given(self._kept_arguments()), cast(Tensor, self._kept('x'))
            hidden: list[Tensor] = []
            with torch.inference_mode(False), torch.no_grad():
                for conv in self.convs[:-1]:
                    src = self._hidden(conv, src, own)
                    hidden.append(src)
                copies = [value.detach().clone() for value in values]
            self._hidden_sources = found = key, copies, hidden
        return found[2]

    def _read(self, out: Tensor, batch: Any) -> Tensor:
        """Apply the readout."""
        if self.readout is None:
            return out
        _, batch = as_pair(batch, 'batch')
        if batch is None:
            batch = torch.zeros(len(out), dtype=torch.long, device=out.device)
        graphs: Tensor = self.readout(out, batch)
        if graphs.size(-1) != out.size(-1):
            raise ValueError(
                f"'readout' must keep the {out.size(-1)} channels of the nodes "
                f'(got {graphs.size(-1)} from {self.readout})'
            )
        return graphs

    def __repr__(self) -> str:
        text = (
            f'{self.__class__.__name__}({self.in_channels}, {self.hidden_channels}, '
            f'num_layers={self.num_layers}, out_channels={self.out_channels}'
        )
        shown = {
            'num_transition_nodes': None,
            'transition': 'projected',
            'z_channels': None,
            'task': 'classification',
            'readout': None,
            'num_relations': None,
        }
        for name, default in shown.items():
            value = getattr(self, name)
            if value != default:
                text += f', {name}={value!r}'
        return f'{text})'


def _are_equal(first: list[Tensor], second: list[Tensor]) -> bool:
    """Return whether tensors have equal values, types and devices."""
    return len(first) == len(second) and all(
        a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
        for a, b in zip(first, second, strict=True)
    )


def _given(args: Arguments) -> Arguments:
    return {name: value for name, value in args.items() if value is not None}
