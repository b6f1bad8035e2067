"""What stands for a sensor: a free vector, a row that is given, or windows."""

import pytest
import torch
from oracles import check_gradients
from sampling import normal

from torch_geometric_gsl.nn.embeddings import SensorEmbedding

N, IN, C, OUT = 5, 3, 4, 6


def make(**options):
    torch.manual_seed(5)
    return SensorEmbedding(IN, C, OUT, **options).double()


def test_free_vectors():
    embed = make(num_sensors=N)
    assert embed() is embed.weight
    assert embed(normal(7, N, IN)) is embed.weight
    assert {k: v.shape for k, v in embed.state_dict().items()} == {'weight': (N, OUT)}


def test_rows_that_are_given_are_projected():
    embed, known = make(z_channels=C), normal(N, C)
    expected = known @ embed.lin.weight.t() + embed.lin.bias
    torch.testing.assert_close(embed(z=known), expected)
    src, dst = embed(z=(known, known[:2]))
    torch.testing.assert_close(src, expected)
    torch.testing.assert_close(dst, expected[:2])
    assert set(embed.state_dict()) == {'lin.weight', 'lin.bias'}


@pytest.mark.parametrize('lead', [(), (7,), (2, 4)])
def test_windows_are_reduced_by_a_loop_over_them(lead):
    embed, x = make(), normal(*lead, N, IN)
    total = torch.zeros(N, C).double()
    windows = x.view(-1, N, IN)
    for window in windows:
        for sensor in range(N):
            lin = embed.lin_window
            hidden = lin.weight @ window[sensor] + lin.bias
            total[sensor] += hidden.clamp(min=0)
    expected = total / len(windows) @ embed.lin.weight.t() + embed.lin.bias
    torch.testing.assert_close(embed(x), expected)
    src, dst = embed((x, x[..., :2, :]))
    torch.testing.assert_close(src, expected)
    torch.testing.assert_close(dst, expected[:2])
    embed(x).square().sum().backward()
    check_gradients(embed)


def test_no_windows_have_finite_embeddings():
    assert bool(make()(torch.empty(0, N, IN).double()).isfinite().all())


X, ROWS = normal(7, N, IN), normal(N, C)
FREE, GIVEN = {'num_sensors': N}, {'z_channels': C}


@pytest.mark.parametrize(
    ('options', 'args', 'error', 'match'),
    [
        (FREE, ((X, X),), TypeError, r'each sensor has a vector: .* \(got a pair'),
        (FREE, (X, ROWS), ValueError, r"'z' needs a layer with 'z_channels' \(got Non"),
        ({}, (X, ROWS), ValueError, r"'z' needs a layer with 'z_channels' \(got None"),
        ({}, (), TypeError, r"'x' must be a torch.Tensor \(got NoneType\)"),
        ({}, ((X, None),), TypeError, r"'x_dst' must be a torch.Tensor \(got NoneType"),
        ({}, ((X[..., :2], X),), ValueError, r"'x_src' must have 3 channels \(got 2\)"),
        ({}, (X[0, 0],), ValueError, r"'x' must be dense, of shape .* \(got \[3\]"),
        (GIVEN, ((X, X), ROWS), TypeError, r"'z' must be a pair like 'x' \(got a Ten"),
        (GIVEN, (X, (ROWS, ROWS)), TypeError, r"'z' must be a tensor like 'x' \(got a"),
        (GIVEN, (X, ROWS[:2]), ValueError, r'row per sensor \(got 2 for 5 sensors\)'),
    ],
)
def test_bad_input(options, args, error, match):
    with pytest.raises(error, match=match):
        make(**options)(*args)
