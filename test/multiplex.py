"""What tests of several relations share: layers, and what they are called with."""

import pytest
import torch
from sampling import normal

from torch_geometric_gsl import MultiplexLatentGraphConv

N, IN, OUT, K, R = 12, 6, 4, 3, 3
BATCH = torch.arange(N) // 6
EDGES = torch.stack([torch.arange(N).repeat(5), torch.randperm(5 * N) % N])
BELL = {'bias': True, 'centre': 'tanh'}
TRAINING = pytest.mark.parametrize('training', [True, False])
MESSAGES = pytest.mark.parametrize('same_messages', [True, False])
OPTIONS = {
    'plain': {},
    'node': {'shares': 'node'},
    'own messages': {'same_messages': False},
    'loops': {'add_self_loops': True, 'root_weight': False, 'bias': False},
    'null': {'null_score': 0.0, 'scale': 3.0, 'train_scale': True},
    'input': {'z_channels': -1, 'similarity_kwargs': BELL},
    'rows': {'z_channels': 2},
}
EACH = pytest.mark.parametrize('name', OPTIONS)


def make(num_relations=R, dtype=torch.double, **options):
    """Return a layer whose parameters have left their beginning."""
    torch.manual_seed(5)
    options = {'k': K, 'tau': 0.4, 'scale': 1.5, **options}
    conv = MultiplexLatentGraphConv(IN, OUT, num_relations, **options)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter += torch.randn_like(parameter) / 3
    return conv.to(dtype)


def given(name, rows=N):
    return {'z': normal(rows, 2, seed=8)} if name == 'rows' else {}
