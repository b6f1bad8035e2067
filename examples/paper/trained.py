"""Trained models that a run kept, whole or with some of their nodes removed."""

from __future__ import annotations

import dataclasses

import torch
from config import RunConfig
from files import read_tensors
from methods import build
from store import Store
from torch import Tensor
from torch_geometric.data import Data

from torch_geometric_gsl.nn import IDGLAnchor, NodeClassifier

# The parameters of a transition graph: one row per transition node.
THETAS = ('theta_t', 'theta_e')


def load_trained(store: Store, config: RunConfig, data: Data) -> NodeClassifier:
    """The model of the epoch that validation selected."""
    path = store.folder(config) / 'model.pt'
    state = read_tensors(path)
    if state is None:
        raise SystemExit(
            f"'{path}' is missing or damaged: delete its folder, take the run out of "
            'the results, and run it again'
        )
    model = build(config, data, int(data.y.max()) + 1)
    model.load_state_dict(state)
    return model


def without_nodes(
    model: NodeClassifier, config: RunConfig, data: Data, count: int, seed: int
) -> NodeClassifier:
    """The model without some random transition nodes or anchors."""
    total = config.options.get('num_transition_nodes', 500)
    if isinstance(model, IDGLAnchor):
        model.anchor_seed += seed
        model.keep_anchors(total - count)
        return model
    generator = torch.Generator().manual_seed(seed)
    kept = torch.randperm(total, generator=generator)[: total - count].sort().values
    state: dict[str, Tensor] = {
        name: value[kept] if name.endswith(THETAS) else value
        for name, value in model.state_dict().items()
    }
    options = dict(config.options) | {'num_transition_nodes': len(kept)}
    smaller = dataclasses.replace(config, options=options)
    model = build(smaller, data, int(data.y.max()) + 1)
    model.load_state_dict(state)
    return model
