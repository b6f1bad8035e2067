"""The baselines in small: the options of each, of which the first serve all tests."""

import math

import torch
from torch.nn import functional as F

from reproduction import baselines

N, IN, OUT = 12, 6, 4
SIZES = (IN, 8, 2, OUT)
NAMES = ('in_channels', 'hidden_channels', 'num_layers', 'out_channels')
DENOISER = {'k': 2, 'binary': False, 'denoising_channels': 16}
ENCODER = {
    'k': 2,
    'encoder_channels': 16,
    'embedding_channels': 8,
    'projected_channels': 8,
}
# Graphs of a batch end the iteration together.
ITERATIONS = {'k': 2, 'delta': 0.0, 'max_iterations': 3}
CONTROLS = {
    'KNNGCN': [{'k': 2, 'root_weight': True}, {'cached': True}],
    'MLPClassifier': [{}],
}
PUBLISHED = {
    'KNNLINKX': [{'num_nodes': N, 'k': 2}],
    'SLAPS': [DENOISER, DENOISER | {'graph_generator': 'mlp_d'}],
    'SUBLIME': [ENCODER, ENCODER | {'graph_generator': 'mlp'}],
    'HESGSL': [
        DENOISER | {'num_hops': 2},
        DENOISER | {'graph_generator': 'mlp_d'},
    ],
    'IDGL': [ITERATIONS],
    'IDGLAnchor': [ITERATIONS | {'num_anchors': 8}],
    'NodeFormer': [{'heads': 2, 'k': 2}],
}
BASELINES = CONTROLS | PUBLISHED


def features():
    return torch.randn(N, IN, generator=torch.Generator().manual_seed(0))


def make_baseline(name, index=0, **options):
    """Build a baseline with the options of a row, or with others."""
    sizes = dict(zip(NAMES, SIZES, strict=True))
    return getattr(baselines, name)(**(sizes | BASELINES[name][index] | options))


def contrast(view, other_view, temperature):
    """Compute the contrast of two views, a pair of nodes at a time."""
    n = len(view)
    score = [
        [float(F.cosine_similarity(a, b, dim=0)) / temperature for b in other_view]
        for a in view
    ]
    total = 0.0
    for i in range(n):
        row = math.fsum(math.exp(score[i][j]) for j in range(n))
        column = math.fsum(math.exp(score[j][i]) for j in range(n))
        total += math.log(row) + math.log(column) - 2 * score[i][i]
    return total / (2 * n)
