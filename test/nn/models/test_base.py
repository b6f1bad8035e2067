import pytest
import torch

from torch_geometric_gsl.baselines.mlp import MLPClassifier
from torch_geometric_gsl.nn.models.gsl_net import GSLNet

N, OUT = 40, 3
Y, MASK = torch.arange(N) % OUT, torch.arange(N) < 9
KINDS = pytest.mark.parametrize('kind', [GSLNet, MLPClassifier])


def loss(kind, y=Y, mask=MASK):
    torch.manual_seed(1)
    model = kind(5, 8, 2, OUT)
    return model.loss(torch.rand(N, 5), y, mask)


@KINDS
def test_labelled_nodes(kind):
    one = torch.arange(N) == 3
    assert bool(loss(kind, mask=one).isfinite())
    assert torch.equal(loss(kind, mask=torch.tensor([3])), loss(kind, mask=one))
    for none in (torch.zeros_like(one), torch.arange(0), one[:0]):
        with pytest.raises(ValueError, match="'mask' must choose at least one node"):
            loss(kind, mask=none)


@KINDS
def test_all_nodes_without_a_mask(kind):
    expected = loss(kind, mask=torch.arange(N))
    assert torch.equal(loss(kind, mask=None), expected)
    with pytest.raises(ValueError, match=r"'y' has labels outside 0\.\.2"):
        loss(kind, y=Y.masked_fill(~MASK, -1), mask=None)
    model, x = kind(5, 8, 2, OUT), torch.rand(N, 5)
    assert model.score(x, Y) == model.score(x, Y, torch.arange(N))


@KINDS
@pytest.mark.parametrize('missing', [-1, -100, OUT])
def test_labels_of_other_nodes(kind, missing):
    expected = loss(kind)
    assert torch.equal(loss(kind, y=Y.masked_fill(~MASK, missing)), expected)


@KINDS
@pytest.mark.parametrize(
    ('error', 'mask', 'match'),
    [
        (TypeError, 3, r"'mask' must be a torch\.Tensor \(got int\)"),
        (TypeError, MASK.tolist(), r"'mask' must be a torch\.Tensor \(got list\)"),
        (TypeError, MASK.float(), r"'mask' must have dtype .* \(got torch\.float32\)"),
        (TypeError, MASK.byte(), r"'mask' must have dtype torch\.bool, .*uint8\)"),
        (ValueError, MASK.long(), r'a zero or a one per node \(got torch\.int64\)'),
        (ValueError, MASK[1:], r"'mask' must have one entry per node \(got 39 for 40 "),
        (ValueError, MASK.view(-1, 1), r"'mask' must have shape .*\(got \[40, 1\]\)"),
        (ValueError, torch.tensor([3, N]), r"'mask' .* outside 0\.\.39 \(got 3\.\.40"),
        (ValueError, torch.tensor([-1]), r"'mask' .* outside 0\.\.39 \(got -1\.\.-1"),
    ],
)
def test_bad_masks(kind, error, mask, match):
    with pytest.raises(error, match=match):
        loss(kind, mask=mask)


@KINDS
@pytest.mark.parametrize(
    ('error', 'y', 'match'),
    [
        (TypeError, None, r"'y' must be a torch\.Tensor \(got NoneType\)"),
        (TypeError, Y.float(), r"'y' must have dtype torch\.int64 \(got torch\.float"),
        (TypeError, Y.int(), r"'y' must have dtype torch\.int64 \(got torch\.int32\)"),
        (ValueError, Y[:9], r"'y' must have one entry per node \(got 9 for 40 nodes\)"),
        (ValueError, Y.view(-1, 1), r"'y' must have shape \[num_nodes\] \(got \[40, 1"),
        (ValueError, Y + 1, r"'y' has labels outside 0\.\.2 .* \(got 1\.\.3\)"),
        (ValueError, Y - 1, r"'y' has labels outside 0\.\.2 .* \(got -1\.\.1\)"),
        (ValueError, Y.where(Y > 0, -100), r"'y' has labels .* \(got -100\.\.2\)"),
    ],
)
def test_bad_labels(kind, error, y, match):
    with pytest.raises(error, match=match):
        loss(kind, y=y)


@pytest.mark.parametrize('order', [[0], [1, 0], [2, 0, 1]])
def test_indices_of_all_nodes_are_no_mask(order):
    torch.manual_seed(1)
    model, x = MLPClassifier(5, 8, 1, OUT), torch.rand(len(order), 5)
    y, every = torch.tensor(order), torch.ones(len(order), dtype=torch.bool)
    expected = model.loss(x, y, every)
    torch.testing.assert_close(model.loss(x, y, torch.tensor(order)), expected)
