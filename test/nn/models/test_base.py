from __future__ import annotations

import pytest
import torch

from torch_geometric_gsl.nn.models.base import NodeClassifier
from torch_geometric_gsl.nn.models.gsl_net import GSLNet
from torch_geometric_gsl.nn.models.idgl import IDGL
from torch_geometric_gsl.nn.models.mlp import MLPClassifier
from torch_geometric_gsl.nn.models.slaps import SLAPS

N = 40


@pytest.mark.parametrize('kind', [GSLNet, IDGL, MLPClassifier, SLAPS])
def test_labelled_nodes(kind: type[NodeClassifier]) -> None:
    torch.manual_seed(1)
    model, x, y = kind(5, 8, 2, 3), torch.rand(N, 5), torch.arange(N) % 3
    one = torch.arange(N) == 3
    assert bool(model.loss(x, y, one).isfinite())
    assert bool(model.loss(x, y, torch.tensor([3])).isfinite())
    for none in (torch.zeros_like(one), torch.arange(0), one[:0]):
        with pytest.raises(ValueError, match="'mask' must choose at least one node"):
            model.loss(x, y, none)
