"""Name the methods of the tables and build their models."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

import torch_geometric_gsl as gsl
from reproduction.config import RunConfig
from torch_geometric_gsl import NodeClassifier
from torch_geometric_gsl.transforms import SimilarityKNNGraph

Build = Callable[..., NodeClassifier]


class Method(NamedTuple):
    """A row of a table.

    Args:
        title: The name that the paper gives it.
        group: `ours`, `baseline`, or `control`, which the paper does not print.
        build: The class of the model, or a function of the same arguments.
        options: Arguments that make it this method; settings do not change them.
        revision: Raised when the method or a default of its model changes: runs of
            before are then those of another setting.
    """

    title: str
    group: str
    build: Build
    options: dict[str, Any] = {}  # noqa: RUF012
    revision: int = 0


class CandidateNet(NodeClassifier):
    """A :class:`~torch_geometric_gsl.GSLNet` that draws among nearest neighbours.

    Args:
        candidates: The number of nearest neighbours (cosine) of each node.
        *args: Arguments of the net.
        **kwargs: Arguments of the net.
    """

    def __init__(self, candidates: int, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.candidates = candidates
        self.net = gsl.GSLNet(*args, **kwargs)
        self._edge_index: Tensor | None = None

    def reset_parameters(self) -> None:
        self.net.reset_parameters()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        for name, value in (('edge_index', edge_index), ('batch', batch)):
            if value is not None:
                raise ValueError(f"'{name}' must be None: candidates are searched once")
        if self._edge_index is None:
            nearest = SimilarityKNNGraph(k=self.candidates)
            self._edge_index = nearest(Data(x=x)).edge_index
        out: Tensor = self.net(x, self._edge_index, generator=generator)
        return out


def gsl_net(
    *args: Any,
    num_nodes: int,
    candidates: int | None = None,
    num_transition_nodes: int | None = None,
    **kwargs: Any,
) -> NodeClassifier:
    """Build the net of the paper: full graph, transition graph, or candidates."""
    if candidates is not None:
        return CandidateNet(candidates, *args, **kwargs)
    if num_transition_nodes is not None:
        kwargs |= {'num_nodes': num_nodes, 'num_transition_nodes': num_transition_nodes}
    return gsl.GSLNet(*args, **kwargs)


def idgl_anchor(
    *args: Any,
    num_nodes: int,
    num_anchors: int = 500,
    smoothness: float = 0.4,
    sparsity: float = 0.2,
    **kwargs: Any,
) -> NodeClassifier:
    """Scale IDGL's factors of the loss to a graph whose weights grow like n / s."""
    share = min(1.0, num_anchors / num_nodes)
    return gsl.IDGLAnchor(
        *args,
        num_anchors=num_anchors,
        smoothness=smoothness * share,
        sparsity=sparsity * share**2,
        **kwargs,
    )


def without_num_nodes(build: Build, *args: Any, num_nodes: int, **kwargs: Any) -> Any:
    return build(*args, **kwargs)


def fixed(build: Build) -> Build:
    """Drop the number of nodes, on which the size of the model does not depend."""
    return partial(without_num_nodes, build)


def ours(title: str, similarity: str) -> Method:
    return Method(title, 'ours', gsl_net, {'similarity': similarity})


KNN = {'cached': True}
METHODS = {
    'gcn_knn': Method('GCN_knn', 'baseline', fixed(gsl.KNNGCN), KNN),
    'heat_gcn_knn': Method(
        'HeatGCN_knn',
        'baseline',
        fixed(gsl.KNNGCN),
        KNN | {'similarity': 'heat_kernel'},
    ),
    'linkx_knn': Method('LINKX_knn', 'baseline', gsl.KNNLINKX, KNN),
    'slaps': Method('SLAPS', 'baseline', fixed(gsl.SLAPS), revision=1),
    'idgl': Method('IDGL-Full', 'baseline', fixed(gsl.IDGL), KNN),
    'idgl_anchor': Method('IDGL-Anchor', 'baseline', idgl_anchor, KNN),
    'nodeformer': Method('NodeFormer', 'baseline', fixed(gsl.NodeFormer)),
    'lin_sim': ours('LinSim', 'linear'),
    'lin_sim_t': ours('LinSim-T', 'linear'),
    'gau_sim': ours('GauSim', 'gaussian'),
    'gau_sim_t': ours('GauSim-T', 'gaussian'),
    'neural_gau_sim': ours('NeuralGauSim', 'neural_gaussian'),
    'neural_gau_sim_t': ours('NeuralGauSim-T', 'neural_gaussian'),
    'mlp': Method('MLP', 'control', fixed(gsl.MLPClassifier)),
    'knn_gcn_root': Method(
        'kNN-GCN, root weight',
        'control',
        fixed(gsl.KNNGCN),
        KNN | {'root_weight': True},
    ),
    'uniform': Method(
        'Uniform random graph', 'control', gsl_net, {'similarity': 'uniform'}
    ),
}


def build(config: RunConfig, data: Data) -> NodeClassifier:
    """Build the model of a run; warn where the data has fewer neighbours than asked."""
    method = METHODS[config.method]
    options, num_nodes = dict(config.options), int(data['x'].size(0))
    most = num_nodes - 1
    for name in ('k', 'candidates'):
        if (options.get(name) or 0) > most:
            warnings.warn(
                f"'{name}' is {most} instead of {options[name]} for {config.method} on "
                f'{config.data_name}: it has {num_nodes} nodes',
                stacklevel=2,
            )
            options[name] = most
    return method.build(
        data.num_features,
        out_channels=int(data['y'].max()) + 1,
        num_nodes=num_nodes,
        **method.options,
        **options,
    )


def parameter_groups(
    model: NodeClassifier, config: RunConfig
) -> list[dict[str, Any]] | list[torch.nn.Parameter]:
    """Group parameters: SLAPS trains graph and autoencoder at a rate of their own."""
    if not isinstance(model, gsl.SLAPS):
        return list(model.parameters())
    rest = [*model.denoiser.parameters(), *model.graph_generator.parameters()]
    own: dict[str, Any] = {'params': list(model.classifier.parameters())}
    lr = config.denoising_lr or config.lr
    return [own, {'params': rest, 'lr': lr, 'weight_decay': 0.0}]
