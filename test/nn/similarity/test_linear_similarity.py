from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
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


class Steep(LinearSimilarity):
    """Another score than that of its parent, of which nothing is declared."""

    def response(self, value: Tensor, *params: Tensor) -> Tensor:
        return 4 * value


class BoundedSteep(Steep):
    bounds: ClassVar[tuple[float, float]] = (-4.0, 4.0)


class Raw(LinearSimilarity):
    def encode(self, x: Tensor) -> Tensor:
        return self.project(x)


class Renamed(LinearSimilarity):
    """The very score of its parent."""


def test_a_score_of_ones_own_has_no_bounds_of_its_parent() -> None:
    infinite = (-float('inf'), float('inf'))
    assert (Steep.bounds, Steep.formula) == (infinite, None)
    assert (BoundedSteep.bounds, BoundedSteep.formula) == ((-4.0, 4.0), None)
    assert (Raw.bounds, Raw.formula) == (infinite, 'identity')
    assert (Renamed.bounds, Renamed.formula) == ((-1.0, 1.0), 'identity')
    x = torch.randn(3000, 3)
    assert GumbelKNNSampler(Steep(3)).plan(x).method == 'stream'
    assert GumbelKNNSampler(Renamed(3)).plan(x).method == 'race'


def test_a_subclass_that_scores_rows_by_itself_has_no_formula() -> None:
    class Opposite(LinearSimilarity):
        def score_rows(self, *args: Any, **kwargs: Any) -> Tensor:
            return -super().score_rows(*args, **kwargs)

    assert LinearSimilarity.formula == 'identity'
    assert Opposite.formula is None
