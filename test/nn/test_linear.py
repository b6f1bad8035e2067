from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import Linear

from torch_geometric_gsl.nn.linear import apply_linear
from torch_geometric_gsl.nn.models.gsl_net import GSLNet


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_sparse_is_dense(dtype: torch.dtype) -> None:
    x = (torch.rand(6, 5) < 0.4).to(dtype)
    lin = Linear(5, 3, bias=False).to(dtype)
    torch.testing.assert_close(apply_linear(lin, x.to_sparse_csr()), x @ lin.weight.t())


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_sparse_half_precision(dtype: torch.dtype) -> None:
    x = (torch.rand(6, 5) < 0.4).to(dtype)
    lin = Linear(5, 3, bias=False).to(dtype)
    out = apply_linear(lin, x.to_sparse_csr())
    assert out.dtype == dtype
    torch.testing.assert_close(out, x @ lin.weight.t())
    out.sum().backward()
    expected = x.sum(dim=0).expand(3, -1)
    torch.testing.assert_close(lin.weight.grad, expected)


def test_sparse_autocast() -> None:
    x = (torch.rand(6, 5) < 0.4).float()
    lin = Linear(5, 3, bias=False)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        out = apply_linear(lin, x.to_sparse_csr())
        expected = apply_linear(lin, x)
    assert out.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(out, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    'transition', [{}, {'num_nodes': 9, 'num_transition_nodes': 4}]
)
def test_models_of_sparse_half_precision(transition: dict[str, int]) -> None:
    x = (torch.rand(9, 5) < 0.4).float().to_sparse_csr()
    model = GSLNet(5, 8, 2, 3, k=2, **transition)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        out = model(x)
    out.sum().backward()
    half = GSLNet(5, 8, 2, 3, k=2, **transition).bfloat16()
    half(x.to_dense().bfloat16().to_sparse_csr()).sum().backward()
    for module in (model, half):
        for parameter in module.parameters():
            assert parameter.grad is not None
            assert bool(parameter.grad.isfinite().all())
