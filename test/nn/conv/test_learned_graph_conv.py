"""What the layers that learn their graph compare."""

import pytest

from torch_geometric_gsl.nn.conv.learned_graph_conv import compared_width


def test_the_width_of_what_is_compared():
    for expected, *args in (
        (None, None, -1),
        (None, None, (5, 6)),
        (6, -1, 6),
        (6, -1, (6, 6)),
        (3, 3, -1),
        (3, 3, (5, 6)),
    ):
        assert compared_width(*args) == expected
    known = "'in_channels' must be one known width with z_channels=-1 "
    for error, text, *args in (
        (ValueError, known + r'\(got -1\)', -1, -1),
        (ValueError, known + r'\(got \(-1, 6\)\)', -1, (-1, 6)),
        (ValueError, known + r'\(got \(5, 6\)\)', -1, (5, 6)),
        (ValueError, r"'z_channels' must be at least 1 \(got 0\)", 0, 6),
        (TypeError, r"'z_channels' must be an integer \(got float\)", 2.0, 6),
    ):
        with pytest.raises(error, match=text):
            compared_width(*args)
