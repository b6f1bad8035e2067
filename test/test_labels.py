"""Which labels are classes."""

import numpy as np
import pytest

from torch_geometric_gsl._labels import find_labelled


@pytest.mark.parametrize(
    ('y', 'expected'),
    [
        ([-1, 1, -1], [1, 1, 1]),  # Two classes.
        ([-1, 0, -2, 1], [1, 1, 1, 1]),  # Others are negative, too.
        ([-1, -1, -1, -1, 0, 1, 2], [0, 0, 0, 0, 1, 1, 1]),
        ([-1] * 20 + [0, 1], [0] * 20 + [1, 1]),
        ([-1, -1], [0, 0]),
        ([0, 1, 2], [1, 1, 1]),
        (['-1', 'a', 'b'], [1, 1, 1]),
        ([], []),
    ],
)
def test_which_labels_are_classes(y, expected):
    assert find_labelled(np.array(y)).tolist() == [bool(flag) for flag in expected]


@pytest.mark.parametrize('dtype', [int, float])
def test_a_minority_of_minus_one_may_be_a_class(dtype):
    text = r"'y' has the label -1 in 2 of 4 rows, which count as unlabelled: pass str"
    with pytest.warns(UserWarning, match=text):
        is_labelled = find_labelled(np.array([-1, 0, 1, -1], dtype=dtype))
    assert is_labelled.tolist() == [False, True, True, False]
    # Of two others up to nine in ten, as three classes are often -1, 0 and 1.
    with pytest.warns(UserWarning, match='the label -1 in 18 of 20 rows'):
        find_labelled(np.array([-1] * 18 + [0, 1], dtype=dtype))
