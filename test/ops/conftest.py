import pytest

from torch_geometric_gsl.ops.pair_scores import PairScores


@pytest.fixture
def heights(spy):
    """The numbers of targets of the blocks that are scored, from here on."""
    return spy(PairScores, 'rows', lambda _, pairs, block: block.stop - block.start)
