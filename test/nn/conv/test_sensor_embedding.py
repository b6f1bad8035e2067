"""What stands for a sensor: free vectors, what is given, or reduced windows."""

import pytest
import torch
from oracles import check_gradients
from sampling import normal

from torch_geometric_gsl.nn.conv.sensor_embedding import SensorEmbedding, check_windows

N, IN, C, OUT = 5, 3, 4, 6


def make(compare, num_sensors=None):
    torch.manual_seed(5)
    return SensorEmbedding(compare, IN, C, OUT, num_sensors).double()


def test_free_vectors():
    embed = make('free', N)
    assert embed() is embed.weight
    assert embed(normal(7, N, IN)) is embed.weight
    assert {k: v.shape for k, v in embed.state_dict().items()} == {'weight': (N, OUT)}


def test_given_embeddings_are_projected():
    embed, known = make('embedding'), normal(N, C)
    expected = known @ embed.lin.weight.t() + embed.lin.bias
    torch.testing.assert_close(embed(embedding=known), expected)
    src, dst = embed(embedding=(known, known[:2]))
    torch.testing.assert_close(src, expected)
    torch.testing.assert_close(dst, expected[:2])
    assert set(embed.state_dict()) == {'lin.weight', 'lin.bias'}


@pytest.mark.parametrize('lead', [(), (7,), (2, 4)])
def test_windows_are_reduced_by_a_loop_over_them(lead):
    embed, x = make('windows'), normal(*lead, N, IN)
    total = torch.zeros(N, C).double()
    windows = x.view(-1, N, IN)
    for window in windows:
        for sensor in range(N):
            lin = embed.lin_window
            hidden = lin.weight @ window[sensor] + lin.bias
            total[sensor] += hidden.clamp(min=0)
    expected = total / len(windows) @ embed.lin.weight.t() + embed.lin.bias
    torch.testing.assert_close(embed(x), expected)
    src, dst = embed(x[..., :2, :], x)
    torch.testing.assert_close(src, expected)
    torch.testing.assert_close(dst, expected[:2])
    embed(x).square().sum().backward()
    check_gradients(embed)


def test_no_windows_have_finite_embeddings():
    assert bool(make('windows')(torch.empty(0, N, IN).double()).isfinite().all())


def test_bad_input():
    x, known = normal(7, N, IN), normal(N, C)
    for call, error, match in (
        (lambda: make('time'), ValueError, r"'compare' must be .* \(got 'time'\)"),
        (lambda: make('free'), TypeError, "'num_sensors' must be an integer"),
        (lambda: make('windows', N), ValueError, "'num_sensors' has no meaning with"),
        (lambda: make('free', N)(x, x), ValueError, 'new sensors have no vector'),
        (lambda: make('free', N)(x, None, known), ValueError, "'embedding' has no m"),
        (lambda: make('windows')(), TypeError, r"'x' must be a torch.Tensor \(got No"),
        (lambda: make('windows')(x[..., :2]), ValueError, "'x' must have 3 channels"),
        (lambda: make('windows')(x / 0), ValueError, "'x' contains NaN or inf"),
        (lambda: make('windows')(x.float()), TypeError, "'x' has torch.float32"),
        (lambda: make('embedding')(x), ValueError, r"'embedding' must be given \(got"),
        (lambda: make('embedding')(x, x), ValueError, "'embedding' must be given"),
        (lambda: make('embedding')(x, x, known), TypeError, "'embedding' must be a p"),
        (
            lambda: make('embedding')(x, None, known[:2]),
            ValueError,
            r"'embedding' must have one row per sensor \(got 2 for 5 sensors\)",
        ),
        (
            lambda: make('embedding')(x, None, known.float()),
            TypeError,
            "'embedding' has torch.float32",
        ),
        (
            lambda: make('embedding')(x, None, known[:, :2]),
            ValueError,
            r"'embedding' must have 4 channels \(got 2\)",
        ),
        (
            lambda: check_windows(x[0, 0], 'x'),
            ValueError,
            r"'x' must be dense, of shape \[\*, num_sensors, channels\] \(got \[3\]",
        ),
        (
            lambda: check_windows(x, 'x', 4),
            ValueError,
            r"'x' must have num_sensors=4 sensors \(got 5\)",
        ),
    ):
        with pytest.raises(error, match=match):
            call()
