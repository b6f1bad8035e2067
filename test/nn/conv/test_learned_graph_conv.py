"""What the layers that learn their graph compare."""

import pytest
import torch

from torch_geometric_gsl import GumbelKNNSampler, LinearSimilarity
from torch_geometric_gsl.nn.conv.learned_graph_conv import (
    check_embedding,
    compared_channels,
)


def test_the_width_of_what_is_compared():
    assert compared_channels('projected', -1, None) is None
    assert compared_channels('input', 6, None) == 6
    assert compared_channels('embedding', -1, 3) == 3
    for args, match in (
        (('rows', 6, None), r"'compare' must be one of .* \(got 'rows'\)"),
        (('input', -1, None), r"'in_channels' must be known with compare='input'"),
        (('input', 6, 3), "'embedding_channels' has no meaning with compare='input'"),
        (('embedding', 6, 0), r"'embedding_channels' must be at least 1 \(got 0\)"),
        (
            ('embedding', 6, None),
            r"'embedding_channels' must be given with compare=",
        ),
    ):
        with pytest.raises(ValueError, match=match):
            compared_channels(*args)


def test_embeddings_that_do_not_fit():
    similarity = LinearSimilarity(3, feature_weights=True)
    sampler = GumbelKNNSampler(similarity, k=2)
    check_embedding(torch.ones(5, 3), sampler, 5)
    for embedding, error, match in (
        (torch.ones(4, 3), ValueError, r'one row per node \(got 4 for 5 nodes\)'),
        (torch.ones(5, 2), ValueError, "'embedding' must have 3 channels"),
        (torch.ones(5, 3).double(), TypeError, "'embedding' has torch.float64"),
        (None, TypeError, "'embedding' must be a torch.Tensor"),
    ):
        with pytest.raises(error, match=match):
            check_embedding(embedding, sampler, 5)
