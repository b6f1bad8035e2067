"""Nodes and models of the tests of IDGL."""

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl.baselines import IDGL, IDGLAnchor


@pytest.fixture
def idgl_problem():
    """A function that returns nodes of three classes, and their labels."""

    def problem(num_nodes=9):
        """Classes around centres, not all features of one sign."""
        y = torch.arange(num_nodes) % 3
        x = 0.7 * torch.randn(num_nodes, 5, generator=seeded(3), dtype=torch.double)
        x[torch.arange(num_nodes), y] += 1.5
        return x, y

    return problem


@pytest.fixture
def idgl_model():
    """A function that builds a model for such nodes."""

    def make(kind=IDGL, **kwargs):
        """A model without noise that iterates three times."""
        torch.manual_seed(5)
        defaults = {'k': 2, 'dropout': 0.0, 'delta': 0.0, 'max_iterations': 3}
        if kind is IDGLAnchor:
            defaults |= {'num_anchors': 4, 'smoothness': 0.4, 'sparsity': 0.2}
        sizes = {'num_layers': 2, **defaults, **kwargs}
        return kind(5, 4, out_channels=3, **sizes).double()

    return make
