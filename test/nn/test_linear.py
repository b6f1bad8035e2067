import pytest
import torch
from torch_geometric.nn import Linear

from torch_geometric_gsl.nn.linear import apply_linear


@pytest.mark.parametrize('layout', ['dense', 'sparse'])
def test_first_call_of_a_lazy_layer_under_autocast(layout):
    x = (torch.rand(6, 5) < 0.4).float()
    x = x if layout == 'dense' else x.to_sparse_csr()
    lin = Linear(-1, 3)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        out = apply_linear(lin, x)
        out.sum().backward()
        again = apply_linear(lin, x)
    assert lin.weight.shape == (3, 5)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, again)
    exact = lin(x.to_dense())
    torch.testing.assert_close(out.float(), exact, rtol=0.02, atol=0.02)
    expected = x.to_dense().sum(dim=0).expand(3, -1)
    torch.testing.assert_close(lin.weight.grad, expected)


@pytest.mark.parametrize(
    'dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_sparse_is_dense_and_its_gradient_sparse(dtype):
    dense = (torch.rand(6, 5) < 0.4).to(dtype)
    lin, grad_out = Linear(5, 3, bias=False).to(dtype), torch.randn(6, 3).to(dtype)
    x = dense.to_sparse_csr().requires_grad_()
    out = apply_linear(lin, x)
    torch.testing.assert_close(out, dense @ lin.weight.t())
    assert out.dtype == dtype
    # PyTorch adds no sparse gradients in half precision.
    times = 3 if dtype.itemsize > 2 else 1
    (out + 2 * apply_linear(lin, x) if times > 1 else out).backward(grad_out)
    torch.testing.assert_close(lin.weight.grad, times * grad_out.t() @ dense)
    assert x.grad.layout == torch.sparse_csr
    assert x.grad.values().numel() == dense.count_nonzero()
    expected = times * (grad_out @ lin.weight) * dense
    torch.testing.assert_close(x.grad.to_dense(), expected)
    # It goes on to what the values were made of.
    value = x.detach().values().clone().requires_grad_()
    places = x.crow_indices(), x.col_indices()
    x = torch.sparse_csr_tensor(*places, value, (6, 5))
    apply_linear(lin, x).backward(grad_out)
    expected = (grad_out @ lin.weight)[dense != 0]
    torch.testing.assert_close(value.grad, expected)
