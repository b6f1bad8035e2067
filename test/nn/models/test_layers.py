import pytest
import torch
from oracles import seeded
from torch_geometric.nn import Linear

from torch_geometric_gsl.nn.models.layers import (
    Dropout,
    check_input,
    reset_activation,
    resolve_activation,
)


@pytest.mark.parametrize(
    ('act', 'expected'),
    [
        (None, [-2.0, 0.5]),
        ('relu', [0.0, 0.5]),
        ('ReLU', [0.0, 0.5]),
        (torch.square, [4.0, 0.25]),
        (torch.nn.LeakyReLU(0.5), [-1.0, 0.5]),
    ],
)
def test_activations_by_hand(act, expected):
    assert resolve_activation(act)(torch.tensor([-2.0, 0.5])).tolist() == expected


@pytest.mark.parametrize('act', [3, torch.nn.ReLU])
def test_wrong_activations(act):
    text = r"'act' must be a str, a callable or None \(got "
    with pytest.raises(TypeError, match=text):
        resolve_activation(act)


def test_parameters_of_an_activation_are_reset():
    act = torch.nn.PReLU(init=0.25)
    torch.nn.init.constant_(act.weight, 7.0)
    reset_activation(act)
    assert act.weight.item() == 0.25
    reset_activation(torch.relu)  # It has none.


@pytest.mark.parametrize(
    ('x', 'error', 'text'),
    [
        (torch.rand(3, 4), ValueError, r"'x' must have 5 channels \(got 4\)"),
        (torch.eye(5).double(), TypeError, "'x' has torch.float64 but the parameters"),
        (torch.eye(5, device='meta'), ValueError, "'x' is on meta but the parameters"),
        (None, TypeError, r"'x' must be a torch.Tensor \(got NoneType\)"),
    ],
)
def test_wrong_input(x, error, text):
    with pytest.raises(error, match=text):
        check_input(x, Linear(5, 2))


def test_dropout_follows_a_generator():
    x, drop = torch.ones(200, 3), Dropout(0.25)
    found = drop(x, seeded(1))
    assert torch.equal(found, drop(x, seeded(1)))
    torch.testing.assert_close(found.unique(), torch.tensor([0.0, 4 / 3]))
    assert 0.6 < float((found > 0).float().mean()) < 0.9
    assert drop.eval()(x) is x
    with pytest.raises(ValueError, match=r"'dropout' must lie in \[0, 1\) \(got 1"):
        Dropout(1.0)
