import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import softmax
from sampling import normal

from reproduction.self_supervision import consistency_loss

TWO = torch.ones(3, 2)
ERRORS = [
    (3, TypeError, r"'outs' must be a sequence of tensors \(got int\)"),
    ([[1.0], [2.0]], TypeError, r"'outs' must be a torch.Tensor \(got list\)"),
    (torch.ones(2, 3, 2).long(), TypeError, r'must be floating-point \(got torch.int'),
    (torch.ones(2, 3), ValueError, r"'outs' must have shape .* \(got \[3\]\)"),
    ([TWO], ValueError, r'have at least two passes \(got 1\)'),
    ([TWO, TWO.double()], ValueError, r'have one shape and dtype \(got \[3, 2\] of'),
    ([TWO, torch.ones(3, 4)], ValueError, r'\(got \[3, 2\] of .* and \[3, 4\] of'),
]


def loop_loss(outs, temperature):
    """Compute the loss number by number."""
    total, num_passes, num_nodes = 0.0, len(outs), len(outs[0])
    for i in range(num_nodes):
        shares = [softmax(out[i]) for out in outs]
        mean = [math.fsum(column) / num_passes for column in zip(*shares, strict=True)]
        power = [share ** (1 / temperature) for share in mean]
        target = [value / sum(power) for value in power]
        for share in shares:
            total += sum((p - q) ** 2 for p, q in zip(share, target, strict=True))
    return total / num_passes / num_nodes


@given(
    st.integers(2, 4),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from([0.1, 0.5, 1.0, 3.0]),
)
def test_against_loops(num_passes, num_nodes, num_classes, temperature):
    outs = 2 * normal(num_passes, num_nodes, num_classes)
    expected = loop_loss(outs.tolist(), temperature)
    loss = consistency_loss(list(outs), temperature)
    assert float(loss) == pytest.approx(expected, abs=1e-12)
    # The order of the passes means nothing.
    torch.testing.assert_close(loss, consistency_loss(outs.flip(0), temperature))


def test_no_gradient_flows_through_the_mean():
    outs = normal(2, 5, 3).requires_grad_()
    share = outs.softmax(dim=-1)
    power = share.mean(dim=0).pow(2)
    target = (power / power.sum(dim=1, keepdim=True)).detach()
    expected = (share - target).square().sum(dim=-1).mean()
    losses = consistency_loss(outs), expected
    gradient, expected_gradient = (
        torch.autograd.grad(loss, outs)[0] for loss in losses
    )
    torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype):
    outs = normal(2, 5, 3).to(dtype)
    loss = consistency_loss(outs)
    assert loss.dtype == dtype
    expected = consistency_loss(outs.double())
    assert float(loss) == pytest.approx(float(expected), rel=0.02)


def test_large_logits_and_no_nodes():
    outs = (1e4 * normal(2, 5, 3)).float().requires_grad_()
    loss = consistency_loss(outs, temperature=0.01)
    loss.backward()
    assert loss.isfinite()
    assert outs.grad.isfinite().all()
    assert float(consistency_loss(torch.ones(2, 0, 3))) == 0


@pytest.mark.parametrize(('outs', 'error', 'text'), ERRORS)
def test_errors(outs, error, text):
    with pytest.raises(error, match=text):
        consistency_loss(outs)
    with pytest.raises(ValueError, match=r"'temperature' must be .*\(got 0"):
        consistency_loss(torch.ones(2, 3, 2), 0.0)
