r"""Diagnostics of graphs and of the samplers of a model."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import homophily
from torch_geometric.utils.num_nodes import maybe_num_nodes

from torch_geometric_gsl._checks import (
    check_count,
    check_graph,
    check_index,
    check_node_labels,
    check_number,
    check_type,
)
from torch_geometric_gsl.diagnostics.summaries import (
    GraphSummary,
    LayerSummary,
    ModelSummary,
)
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.nn.models.homophily import (
    HomophilyWarning as HomophilyWarning,
)
from torch_geometric_gsl.nn.models.homophily import label_homophily
from torch_geometric_gsl.nn.sampler.distribution import (
    UniformSamplingWarning as UniformSamplingWarning,
)
from torch_geometric_gsl.nn.sampler.distribution import warn_if_uniform
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.shared_module import all_modules, evaluation
from torch_geometric_gsl.nn.similarity.gaussian_similarity import (
    MixtureSimilarity,
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.ops.edges import (
    chance_share,
    same_label_share,
    weight_spread,
)
from torch_geometric_gsl.ops.generators import GeneratorMode
from torch_geometric_gsl.typing import Features, SampledGraph


def describe_graph(
    graph: SampledGraph | tuple[Tensor, Tensor],
    y: Tensor | tuple[Tensor, Tensor] | None = None,
    num_nodes: int | None = None,
    *,
    threshold: float = 0.0,
) -> GraphSummary:
    r"""Describe a weighted graph.

    The entropy :math:`H_i` of a target's weights, normalised to sum to 1, measures
    their spread: it is that of :math:`e^{H_i}` neighbours of equal weight.

    With labels, two measures of homophily are compared with chance; both ignore
    self-loops, and are :obj:`nan` without edges:

    * :obj:`homophily` counts edges
      (:func:`torch_geometric.utils.homophily` with :obj:`method="edge"`) with a weight
      above :obj:`threshold`: relaxed graphs have many edges of weight near zero.
    * :obj:`weighted_homophily` is the share of the weight on neighbours with the same
      label, :math:`\sum w_{ij} [y_j = y_i] / \sum w_{ij}`. It needs no threshold.

    Args:
        graph (SampledGraph or tuple[torch.Tensor, torch.Tensor]): The edges, sources
            in the first row, and one weight per edge.
        y (torch.Tensor or tuple[torch.Tensor, torch.Tensor], optional): The labels
            :math:`[n]` of the nodes, or those of sources and of targets.
            (default: :obj:`None`)
        num_nodes (int, optional): The number of targets. If :obj:`None`, the number of
            labels, or else one more than the largest target with an edge.
            (default: :obj:`None`)
        threshold (float, optional): Ignores edges with this weight or a smaller one in
            :obj:`homophily`. (default: :obj:`0.0`)

    Example:
        >>> edge_index = torch.tensor([[0, 1, 2, 1], [0, 0, 1, 2]])
        >>> edge_weight = torch.tensor([0.5, 0.5, 1.0, 1.0])
        >>> y = torch.tensor([0, 0, 1])
        >>> summary = describe_graph((edge_index, edge_weight), y)
        >>> summary.effective_neighbors.tolist()
        [2.0, 1.0, 1.0]
        >>> round(summary.weighted_homophily, 3)
        0.2
    """
    graph = check_graph(graph)
    check_number(threshold, 'threshold')
    labels = None if y is None else check_node_labels(y, graph)
    min_targets = maybe_num_nodes(graph.edge_index[1])
    if num_nodes is None:
        num_nodes = min_targets if labels is None else labels[1].numel()
    check_count(num_nodes, 'num_nodes', minimum=0)
    if min_targets > num_nodes:
        raise ValueError(
            f"'num_nodes' must be at least {min_targets}, the number of targets of "
            f"'graph' (got {num_nodes})"
        )
    spread = weight_spread(graph.edge_index[1], graph.edge_weight, num_nodes)
    return GraphSummary(
        num_nodes,
        graph.edge_index.size(1),
        int((graph.edge_weight == 0).sum()),
        int((spread.effective == 0).sum()),
        spread.entropy,
        spread.effective,
        *(() if labels is None else _homophily(graph, *labels, threshold)),
    )


@torch.no_grad()
def describe_model(
    model: torch.nn.Module, *args: Any, labels: Tensor | None = None, **kwargs: Any
) -> ModelSummary:
    r"""Describe the sampling distributions of a model.

    For each call of a :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler` in
    one forward pass in evaluation mode it reports

    * the entropy of the sampling distribution
      :math:`\pi_i = \mathrm{softmax}_j(\lambda \phi_{ij})` of training, and the
      effective number :math:`e^{H(\pi_i)}` of candidates: exactly, for all targets, in
      blocks of rows within the memory of the sampler's :obj:`budget`, in time
      :math:`O(n N)`,
    * the centres :math:`b_i` and bandwidths :math:`c_i` of a
      :class:`~torch_geometric_gsl.nn.similarity.NeuralGaussianSimilarity`, or of the
      bells of a :class:`~torch_geometric_gsl.nn.similarity.MixtureSimilarity`,
    * with :obj:`labels`, the homophily of the graph of evaluation mode, and that by
      chance: a graph of no use is at chance,
    * the gradient norms of the similarity's parameters: call it after :meth:`backward`,
      before gradients are cleared.

    With a :class:`~torch_geometric_gsl.distributed.RowShard` as :obj:`shard` each rank
    describes its rows, and all get the whole summary. Modes are restored, no gradient
    is recorded, and the global generators are not used: a model that samples in
    evaluation mode uses a fixed seed, unless a :obj:`generator` is passed.

    .. note::
        If the effective candidates of a layer exceed 90 % of its candidates, the layer
        draws neighbours almost uniformly at random, and a
        :class:`UniformSamplingWarning` is issued once per process. This is common with
        the paper's :obj:`scale=1.0`: probabilities of candidates differ by at most a
        factor of :math:`e`, so a similarity in :math:`[0, 1]` never falls below 88.4 %,
        whatever it learns. Training can still succeed: a nearly uniform graph adds the
        mean of random nodes, and the root term predicts the labels. A larger
        :obj:`scale` sharpens :math:`\pi`.

    Args:
        model (torch.nn.Module): A model or layer that contains samplers, or a sampler.
        *args (optional): The arguments of its forward pass, first the features.
        labels (torch.Tensor, optional): The class of each node, -1 if unknown.
            (default: :obj:`None`)
        **kwargs (optional): Its keyword arguments.

    Example:
        >>> from torch_geometric_gsl.nn.models import GSLNet
        >>> model = GSLNet(16, 32, num_layers=2, out_channels=7, z_channels=None)
        >>> summary = describe_model(model, torch.randn(100, 16))
        >>> [layer.name for layer in summary.layers]
        ['convs.0.sampler', 'convs.1.sampler']
        >>> print(summary)
        convs.0.sampler: GumbelKNNSampler(MixtureSimilarity(32, share=0.5), k=5, ...
    """
    _find_samplers(model)  # Checks the model.
    summarise = partial(_summarise, shard=kwargs.get('shard'), labels=labels)
    layers: list[LayerSummary] = []
    with ExitStack() as stack:
        model = stack.enter_context(evaluation(model))
        samplers = _find_samplers(model)
        stack.enter_context(GeneratorMode(torch.Generator().manual_seed(0)))
        for name, sampler in samplers.items():
            hook = partial(summarise, layers, name)
            stack.enter_context(sampler.register_draw_hook(hook))
        model(*args, **kwargs)
    if not layers:
        raise ValueError(
            f"'model' must call its samplers in a forward pass (got "
            f'{type(model).__name__}, which called none of {list(samplers)})'
        )
    if labels is not None and all(layer.homophily is None for layer in layers):
        raise ValueError(
            f"'labels' must have one class for each node that a sampler compares with "
            f'the others (got {list(labels.shape)})'
        )
    warn_if_uniform({layer.name: layer.share for layer in layers})
    return ModelSummary(tuple(layers))


def _find_samplers(model: Any) -> dict[str, GumbelKNNSampler]:
    """Return the samplers of a model by name; raise if there are none."""
    check_type(model, torch.nn.Module, 'model', 'a torch.nn.Module')
    if any(map(torch.nn.parameter.is_lazy, model.parameters())):
        raise ValueError(
            "'model' must have all its parameters (got uninitialized ones): run a "
            'forward pass first'
        )
    samplers = {
        name or 'sampler': module
        for name, module in all_modules(model).items()
        if isinstance(module, GumbelKNNSampler)
    }
    if not samplers:
        raise ValueError(
            f"'model' must contain a GumbelKNNSampler (got {type(model).__name__})"
        )
    return samplers


def _summarise(
    layers: list[LayerSummary],
    name: str,
    sampler: GumbelKNNSampler,
    x: Features,
    *sampler_args: Any,
    shard: RowShard | None,
    labels: Tensor | None,
) -> None:
    """Append the summary of a sampler's sampling distribution."""
    similarity = sampler.similarity
    targets = x[1] if isinstance(x, tuple | list) else x
    if shard is not None and targets.size(0) == shard.total:
        shard_spread = sampler.distribution(x, rows=shard.rows)
        spread = shard_spread.map(shard.gather)
    else:
        shard = None
        spread = sampler.distribution(x, *sampler_args)
    homophily: tuple[float | None, float | None] = None, None
    if labels is not None and isinstance(x, Tensor) and len(x) == len(labels):
        check_index(labels, 'labels', '[num_nodes]', 1, like=x)
        homophily = label_homophily(sampler, x, labels, *sampler_args)
    b, c = None, None
    if isinstance(similarity, NeuralGaussianSimilarity | MixtureSimilarity):
        *_, b, c = similarity.pair_scores(x).response.params
    if shard is not None:
        b, c = (v if v is None else shard.gather(shard.split(v)) for v in (b, c))
    norms = {
        key: None if parameter.grad is None else float(parameter.grad.norm())
        for key, parameter in similarity.named_parameters()
    }
    if calls := sum(layer.name.partition(' (')[0] == name for layer in layers):
        name = f'{name} (call {calls + 1})'
    layers.append(
        LayerSummary(
            name,
            repr(sampler),
            spread.candidates,
            spread.entropy,
            spread.effective,
            spread.share,
            b,
            c,
            norms,
            spread.null,
            *homophily,
        )
    )


def _homophily(
    graph: SampledGraph, y_src: Tensor, y_dst: Tensor, threshold: float
) -> tuple[float, float, float]:
    """Compute edge homophily, weighted homophily and their chance level."""
    (source, target), weight = graph
    is_one_set = y_dst is y_src
    if is_one_set:
        is_edge = source != target
        source, target, weight = source[is_edge], target[is_edge], weight[is_edge]
    edges = torch.stack([source, target])
    # Sources and targets in one vector, as PyG expects.
    strong_edges = torch.stack([source, target + y_src.numel()])[:, weight > threshold]
    return (
        float(homophily(strong_edges, torch.cat([y_src, y_dst]), method='edge')),
        same_label_share(edges, weight, y_src, y_dst),
        chance_share(y_src, None if is_one_set else y_dst),
    )
