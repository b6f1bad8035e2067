import pytest
import torch

from torch_geometric_gsl.nn.embeddings import LabelEmbedding

NAN = float('nan')


def test_classes_are_rows_of_the_weight():
    embedding = LabelEmbedding(3, 4)
    weight, bias = embedding.lin.weight, embedding.lin.bias
    out = embedding(torch.tensor([2, -1, 0]))
    assert torch.equal(out[0], weight[:, 2] + bias)
    assert torch.equal(out[1], torch.zeros(4))
    assert torch.equal(out[2], weight[:, 0] + bias)
    one_hot = torch.eye(3)[[2, 0]]
    torch.testing.assert_close(out[[0, 2]], embedding(one_hot))


def test_unknown_numbers_tell_nothing():
    embedding = LabelEmbedding(2, 4).double()
    y = torch.tensor([[1.0, 2.0], [NAN, 5.0], [0.0, 0.0]], requires_grad=True)
    out = embedding(y)
    assert torch.equal(out[1], torch.zeros(4).double())
    torch.testing.assert_close(out[2], embedding.lin.bias)
    out.sum().backward()
    assert bool(embedding.lin.weight.grad.isfinite().all())
    assert LabelEmbedding(1, 4)(torch.tensor([1.0, NAN])).shape == (2, 4)


@pytest.mark.parametrize(
    ('y', 'error', 'text'),
    [
        ([1.0], TypeError, r"'y' must hold classes or numbers \(got list\)"),
        (torch.tensor([True]), TypeError, r'\(got torch.bool\)'),
        (torch.tensor([3]), ValueError, r'classes in 0..2, .* \(got 3..3\)'),
        (torch.tensor([-2]), ValueError, r'\(got -2..-2\)'),
        (torch.zeros(2), ValueError, r"'y' must have shape \[2, 3\] \(got \[2\]\)"),
        (torch.zeros(2, 4), ValueError, r'shape \[2, 3\] \(got \[2, 4\]\)'),
        (torch.zeros(2, 1).long(), ValueError, r'shape \[2\] \(got \[2, 1\]\)'),
    ],
)
def test_wrong_labels(y, error, text):
    with pytest.raises(error, match=text):
        LabelEmbedding(3, 4)(y)


def test_number_of_rows():
    with pytest.raises(ValueError, match=r'one label for each of the 5 sources'):
        LabelEmbedding(3, 4)(torch.tensor([0, 1]), 5)
    assert str(LabelEmbedding(3, 4)) == 'LabelEmbedding(3, 4)'
