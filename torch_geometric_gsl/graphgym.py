r"""Layers and the model for :mod:`torch_geometric.graphgym`, registered by an import.

.. code-block:: python

    import torch_geometric_gsl.graphgym  # Before `set_cfg(cfg)`.

registers the layers :obj:`"latentgraphconv"` and :obj:`"transitiongraphconv"`
(:obj:`cfg.gnn.layer_type`), the network :obj:`"gslnet"` (:obj:`cfg.model.type`) and the
group :obj:`cfg.gsl` of what they are made with: :obj:`similarity`, :obj:`k`,
:obj:`tau`, :obj:`scale`, :obj:`num_transition_nodes` and :obj:`num_nodes` (0 for none),
and :obj:`use_edge_index`, whether the given edges are the only candidates.

It needs yacs: ``pip install yacs pytorch-lightning``.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_option
from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.transition_graph_conv import TransitionGraphConv
from torch_geometric_gsl.nn.models.gsl_net import GSLNet

if find_spec('yacs') is None:
    raise ImportError(
        "'torch_geometric_gsl.graphgym' needs yacs: pip install yacs pytorch-lightning"
    )
with warnings.catch_warnings():
    # Of Lightning, which trains what is registered here, but is not needed to make it.
    warnings.simplefilter('ignore')
    from torch_geometric.graphgym import register
    from torch_geometric.graphgym.config import cfg


def set_cfg_gsl(cfg: Any) -> None:
    r"""Add the group :obj:`cfg.gsl` and its defaults.

    Args:
        cfg (yacs.config.CfgNode): The configuration.
    """
    from yacs.config import CfgNode

    cfg.gsl = CfgNode()
    cfg.gsl.similarity = 'neural_gaussian'
    cfg.gsl.k = 5
    cfg.gsl.tau = 0.25
    cfg.gsl.scale = 1.0
    cfg.gsl.num_transition_nodes = 0
    cfg.gsl.num_nodes = 0
    cfg.gsl.use_edge_index = False


register.register_config('gsl', set_cfg_gsl)


def _options() -> dict[str, Any]:
    """Return what all layers are made with."""
    if 'gsl' not in cfg:
        raise ValueError(
            "'cfg' must have the group 'gsl': import torch_geometric_gsl.graphgym "
            "before 'set_cfg(cfg)'"
        )
    return {name: cfg.gsl[name] for name in ('similarity', 'k', 'tau', 'scale')}


def _given(batch: Any) -> dict[str, Any]:
    """Return the arguments of a call on a batch of GraphGym."""
    given = {'batch': batch.get('batch')}
    if cfg.gsl.use_edge_index:
        given['edge_index'] = batch.edge_index
    return given


@register.register_layer('latentgraphconv')
class GraphGymLatentGraphConv(torch.nn.Module):
    r"""A :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv` of GraphGym.

    Args:
        layer_config (LayerConfig): The sizes of the layer.
        **kwargs (optional): Not used.
    """

    def __init__(self, layer_config: Any, **kwargs: Any) -> None:
        super().__init__()
        sizes = layer_config.dim_in, layer_config.dim_out
        self.model = LatentGraphConv(*sizes, bias=layer_config.has_bias, **_options())

    def forward(self, batch: Any) -> Any:
        batch.x = self.model(batch.x, **_given(batch))
        return batch


@register.register_layer('transitiongraphconv')
class GraphGymTransitionGraphConv(torch.nn.Module):
    r"""A :class:`~torch_geometric_gsl.nn.conv.TransitionGraphConv` of GraphGym, for the
    :obj:`cfg.gsl.num_nodes` nodes of one graph.

    Args:
        layer_config (LayerConfig): The sizes of the layer.
        **kwargs (optional): Not used.
    """

    def __init__(self, layer_config: Any, **kwargs: Any) -> None:
        super().__init__()
        self.model = TransitionGraphConv(
            layer_config.dim_in,
            layer_config.dim_out,
            num_nodes=cfg.gsl.num_nodes,
            num_transition_nodes=cfg.gsl.num_transition_nodes,
            bias=layer_config.has_bias,
            **_options(),
        )

    def forward(self, batch: Any) -> Any:
        batch.x = self.model(batch.x)
        return batch


@register.register_network('gslnet')
class GraphGymGSLNet(torch.nn.Module):
    r"""A :class:`~torch_geometric_gsl.nn.models.GSLNet` of GraphGym, of
    :obj:`cfg.gnn.layers_mp` layers, for nodes or for whole graphs
    (:obj:`cfg.dataset.task`).

    Args:
        dim_in (int): The number of features.
        dim_out (int): The number of outputs.
        **kwargs (optional): Not used.

    Raises:
        ValueError: If the task is neither :obj:`"node"` nor :obj:`"graph"`.
    """

    def __init__(self, dim_in: int, dim_out: int, **kwargs: Any) -> None:
        super().__init__()
        options = _options()
        check_option(cfg.dataset.task, ('node', 'graph'), 'cfg.dataset.task')
        is_graph = cfg.dataset.task == 'graph'
        self.model = GSLNet(
            dim_in,
            cfg.gnn.dim_inner,
            cfg.gnn.layers_mp,
            dim_out,
            num_transition_nodes=cfg.gsl.num_transition_nodes or None,
            num_nodes=cfg.gsl.num_nodes or None,
            dropout=cfg.gnn.dropout,
            act=cfg.gnn.act,
            readout=cfg.model.graph_pooling if is_graph else None,
            **options,
        )

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        given = {} if self.model.num_nodes is not None else _given(batch)
        out, y = self.model(batch.x, **given), batch.y
        if self.model.readout is None and 'split' in batch:
            mask = batch[f'{batch.split}_mask']
            return out[mask], y[mask]
        return out, y
