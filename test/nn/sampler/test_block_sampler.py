from __future__ import annotations

from itertools import product

import pytest
import torch

from torch_geometric_gsl.nn.sampler._block_sampler import BlockSampler
from torch_geometric_gsl.ops.scorer import Law, matrix_scorer


@pytest.mark.parametrize(
    ('is_dense', 'is_noisy'), list(product([True, False], repeat=2))
)
def test_graph_and_sum_agree(is_dense: bool, is_noisy: bool) -> None:
    scorer = matrix_scorer(torch.randn(6, 6, dtype=torch.double), loop=False)
    h = torch.randn(6, 2, dtype=torch.double)

    def sampler(is_dense: bool) -> BlockSampler:
        # All five candidates are kept, so that both methods hold the whole law.
        generator = torch.Generator().manual_seed(3)
        law = Law(k=5, tau=0.5, num_arrivals=5)
        return BlockSampler(law, is_dense, is_noisy, 2**20, generator)

    edge_index, weight = sampler(is_dense).graph(scorer)
    assert edge_index.size(1) == 30
    matrix = torch.zeros(6, 6, dtype=torch.double)
    matrix[edge_index[1], edge_index[0]] = weight
    assert bool((matrix.diagonal() == 0).all())
    torch.testing.assert_close(sampler(True).sum(scorer, h), matrix @ h)
