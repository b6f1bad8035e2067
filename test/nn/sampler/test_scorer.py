from __future__ import annotations

import pytest
import torch

from torch_geometric_gsl.nn.sampler._scorer import Request, make_scorer
from torch_geometric_gsl.nn.similarity.gaussian_similarity import GaussianSimilarity
from torch_geometric_gsl.ops.scorer import Law


@pytest.mark.parametrize('loop', [True, False])
def test_sources_of_each_group(loop: bool) -> None:
    similarity, n = GaussianSimilarity(4).double(), 7
    request = Request(similarity, Law(2, 0.5), 2.0, loop, 'auto', 2**20)
    pair = similarity.encode_pair(torch.randn(n, 4, dtype=torch.double))
    scorer = make_scorer(request, pair, None if loop else torch.arange(n))
    source = torch.tensor([[0, 3, 6, 3], [1, 2, 6, 5], [4, 6, 5, 0]])
    some = scorer.select(source, 3)  # The last group is of one target.
    expected = scorer.rows(slice(None)).gather(1, source[torch.arange(n) // 3])
    assert some.size == (n, 4)
    torch.testing.assert_close(some.rows(slice(None)), expected)
    blocks = some.split([3, 4])
    assert [block.size for block in blocks] == [(3, 4), (4, 4)]
    found = torch.cat([block.rows(slice(None)) for block in blocks])
    torch.testing.assert_close(found, expected)
