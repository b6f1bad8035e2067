import math

import pytest
import torch
from sampling import normal

from torch_geometric_gsl.nn.conv.transition_graph_conv import TransitionGraphConv

N, S, IN, OUT = 7, 6, 11, 4


def make(**kwargs):
    return TransitionGraphConv(IN, OUT, N, S, **kwargs).double()


def test_repr():
    assert str(TransitionGraphConv(16, 32, num_nodes=100)) == (
        'TransitionGraphConv(16, 32, num_nodes=100, num_transition_nodes=500, '
        'similarity=NeuralGaussianSimilarity(32, c_scale=0.1), k=5, tau=0.25)'
    )
    assert str(TransitionGraphConv(-1, 8, 9, 3, 'linear', k=2, tau=1.0)) == (
        'TransitionGraphConv(-1, 8, num_nodes=9, num_transition_nodes=3, '
        'similarity=LinearSimilarity(8), k=2, tau=1.0)'
    )


def test_parameters_are_scaled_projections():
    conv = make()
    assert conv.w_t.shape == conv.w_e.shape == (S, N)
    torch.testing.assert_close(conv.theta_t, N * conv.w_t)
    torch.testing.assert_close(conv.theta_e, N * conv.w_e)
    bound = math.sqrt(6 / (S + N))  # The projections themselves start as Glorot's.
    for weight in (conv.w_t, conv.w_e):
        assert 0.8 * bound < float(weight.detach().abs().max()) <= bound


@pytest.mark.parametrize('sparse', [True, False])
@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_wide_matrix_is_never_formed(method, training, sparse, meter):
    conv = make(method=method).train(training)
    x = normal(N, IN).to_sparse_csr() if sparse else normal(N, IN).requires_grad_()
    wide = {(S, IN), (IN, S)}
    with meter() as found:
        conv(x).square().sum().backward()
    assert (S, OUT) in found.shapes
    assert (OUT, IN) in found.shapes or (IN, OUT) in found.shapes  # A gradient.
    assert not found.shapes & wide
    if not sparse:  # The other order of brackets would be seen.
        with meter() as found:
            conv.lin(conv.w_e @ x)
        assert found.shapes & wide


def test_other_number_of_nodes():
    for call in (make(), make().graph):
        with pytest.raises(ValueError, match=r'num_nodes=7 rows \(got 5\); the trans'):
            call(normal(N, IN)[:5])


@pytest.mark.parametrize(
    ('error', 'args', 'match'),
    [
        (ValueError, (4, 4, 0), r"'num_nodes' must be at least 1 \(got 0\)"),
        (TypeError, (4, 4, None), r"'num_nodes' must be an integer \(got NoneType\)"),
        (ValueError, (4, 4, 5, 0), "'num_transition_nodes' must be at least 1"),
        (TypeError, (4, 4, 5, 0.5), "'num_transition_nodes' must be an integer"),
    ],
)
def test_bad_arguments(error, args, match):
    with pytest.raises(error, match=match):
        TransitionGraphConv(*args)


def test_a_pair_of_widths():
    with pytest.raises(
        TypeError, match=r"'in_channels' must be an integer \(got tuple"
    ):
        TransitionGraphConv((4, 5), 4, 5, 2)


@pytest.mark.parametrize('name', ['observed', 'z_channels', 'label_channels'])
def test_arguments_of_graphs_between_all_nodes(name):
    with pytest.raises(TypeError, match=f"GraphConv has no option '{name}'"):
        TransitionGraphConv(4, 4, 5, 2, **{name: 3})
