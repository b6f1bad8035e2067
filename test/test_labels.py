"""Which labels are classes."""

import numpy as np
import pytest

from torch_geometric_gsl._labels import find_labelled


@pytest.mark.parametrize(
    ('y', 'known'),
    [
        ([-1, 1, -1], [1, 1, 1]),  # Two classes.
        ([-1, 0, -2, 1], [1, 1, 1, 1]),  # Others are negative, too.
        ([-1, -1, -1, 0, 1], [0, 0, 0, 1, 1]),
        ([-1, -1], [0, 0]),
        ([0, 1, 2], [1, 1, 1]),
        (['-1', 'a', 'b'], [1, 1, 1]),
        ([], []),
    ],
)
def test_without_a_warning(y, known):
    assert find_labelled(np.array(y)).tolist() == [bool(one) for one in known]


@pytest.mark.parametrize('dtype', [int, float])
def test_a_minority_of_minus_one_may_be_a_class(dtype):
    text = r"'y' has the label -1 in 2 of 4 rows, which count as unlabelled: pass texts"
    with pytest.warns(UserWarning, match=text):
        found = find_labelled(np.array([-1, 0, 1, -1], dtype=dtype))
    assert found.tolist() == [False, True, True, False]
