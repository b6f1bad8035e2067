from __future__ import annotations

import pytest
import torch

from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity


def test_repr() -> None:
    assert str(LinearSimilarity(16)) == 'LinearSimilarity(16)'
    assert str(LinearSimilarity(16, 8)) == 'LinearSimilarity(16, 8)'


def test_by_hand() -> None:
    # The angles of a 3-4-5 triangle; a node without features resembles nobody.
    x = torch.tensor([[2.0, 0.0], [3.0, 4.0], [0.0, -1.0], [0.0, 0.0]])
    expected = torch.tensor(
        [[1, 0.6, 0, 0], [0.6, 1, -0.8, 0], [0, -0.8, 1, 0], [0, 0, 0, 0]]
    )
    torch.testing.assert_close(LinearSimilarity(2)(x), expected)


def test_lengths_do_not_matter() -> None:
    x, module = torch.randn(4, 3), LinearSimilarity(3)
    factor = torch.tensor([[1e-9], [1.0], [7.0], [1e9]])
    torch.testing.assert_close(module(factor * x), module(x))


def test_projection_is_by_hand() -> None:
    module = LinearSimilarity(2, 1)
    assert module.lin is not None
    assert module.lin.bias is None
    torch.nn.init.ones_(module.lin.weight)
    # One channel leaves the sign of the sum only.
    x = torch.tensor([[3.0, 1.0], [-2.0, 1.0]])
    assert module(x).tolist() == [[1, -1], [-1, 1]]


@pytest.mark.parametrize(('out_channels', 'count'), [(None, 0), (7, 1)])
def test_parameters(out_channels: int | None, count: int) -> None:
    assert len(list(LinearSimilarity(3, out_channels).parameters())) == count
