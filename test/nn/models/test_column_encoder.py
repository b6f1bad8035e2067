"""Columns and their periodic embeddings."""

import math

import pytest
import torch

from torch_geometric_gsl.nn.models.column_encoder import ColumnEncoder


def test_equals_the_definition():
    pytest.importorskip('rtdl_num_embeddings')
    encoder = ColumnEncoder(3, 4, num_frequencies=2, periodic_columns=[2, 0])
    x = torch.randn(5, 3)
    (frequencies,) = (
        p for name, p in encoder.periodic.named_parameters() if 'periodic' in name
    )
    shared = encoder.periodic.linear
    parts = [x]
    for place, column in enumerate([2, 0]):
        angle = 2 * math.pi * frequencies[place] * x[:, column : column + 1]
        wave = torch.cat([angle.cos(), angle.sin()], dim=1)
        parts.append((wave @ shared.weight.t() + shared.bias).relu())
    expected = torch.cat(parts, dim=1) @ encoder.lin.weight.t() + encoder.lin.bias
    torch.testing.assert_close(encoder(x), expected)


def test_no_embeddings():
    encoder = ColumnEncoder(3, 4, num_frequencies=0)
    x = torch.randn(5, 3)
    torch.testing.assert_close(encoder(x), encoder.lin(x))
    torch.testing.assert_close(encoder(x.to_sparse_csr()), encoder.lin(x))
    with pytest.raises(ValueError, match="'embedding_channels' must be at least 1"):
        ColumnEncoder(3, 4, embedding_channels=0)
