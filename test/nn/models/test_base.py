"""Losses, scores and evaluation of models: masks, labels, and modes."""

import pytest
import torch
from sklearn.metrics import r2_score
from torch.nn import functional as F

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.distributed import RowShard
from torch_geometric_gsl.nn.models.base import NodeClassifier

N, IN = 12, 5
OUT = {'classification': 3, 'regression': 2, 'binary': 1, 'multilabel': 4}
METRICS = {
    'classification': 'accuracy',
    'regression': 'r2',
    'binary': 'accuracy',
    'multilabel': 'micro_f1',
}
TASKS = pytest.mark.parametrize('task', OUT)
MASKS = pytest.mark.parametrize(
    'mask', [None, torch.arange(N) < 7, torch.tensor([9, 2, 4])]
)


class Plain(NodeClassifier):
    """A linear model, the smallest that follows a task."""

    reset_parameters = None

    def __init__(self, task):
        super().__init__()
        self.task = task
        self.dropout = torch.nn.Dropout(0.5)
        self.frozen = torch.nn.Dropout(0.5).eval()
        self.lin = torch.nn.Linear(IN, OUT[task]).double()

    def forward(self, x, factor=1.0):
        if factor < 0:
            raise ValueError("'factor' must not be negative")
        return factor * self.lin(self.frozen(self.dropout(x)))


def problem(task, rows=slice(None)):
    """Return a model, features of some nodes, and their labels."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, IN, generator=generator, dtype=torch.double)
    hidden = torch.randn(N, 4, generator=generator, dtype=torch.double)
    torch.manual_seed(1)
    model = GSLNet(IN, 8, 2, OUT[task], task=task).double().eval()
    labels = {
        'classification': hidden[:, :3].argmax(dim=1),
        'regression': hidden[:, :2],
        'binary': (hidden[:, 0] > 0).long(),
        'multilabel': (hidden > 0).long(),
    }
    return model, x[rows], labels[task][rows]


def plain_loss(task, out, y):
    if task == 'classification':
        return F.cross_entropy(out, y)
    if task == 'regression':
        return (out - y).square().mean()
    return F.binary_cross_entropy_with_logits(out, y.reshape(out.shape).to(out))


def plain_score(task, out, y):
    if task == 'classification':
        return (out.argmax(dim=1) == y).double().mean()
    if task == 'regression':
        error, spread = (out - y).square().sum(0), y.var(0, correction=0) * len(y)
        return (1 - error / spread).mean()
    said, y = out > 0, y.reshape(out.shape) > 0
    if task == 'binary':
        return (said == y).double().mean()
    return 2 * (said & y).sum() / (said.sum() + y.sum())


@TASKS
@MASKS
@pytest.mark.parametrize('is_shared', [False, True])
def test_loss_and_score(task, mask, is_shared):
    """A shard of one process owns all rows."""
    model, x, y = problem(task)
    rows = torch.arange(N) if mask is None else mask
    weight, out = model.convs[0].lin.weight, model(x)
    expected = plain_loss(task, out[rows], y[rows])
    (expected_grad,) = torch.autograd.grad(expected, weight)
    score = plain_score(task, out.detach()[rows], y[rows])
    shard = {'shard': RowShard(N)} if is_shared else {}
    loss = model.loss(x, y, mask, **shard)
    assert loss.shape == ()
    torch.testing.assert_close(loss, expected)
    (grad,) = torch.autograd.grad(loss, weight)
    torch.testing.assert_close(grad, expected_grad)
    scores = model.score(x, y, mask, **shard)
    assert scores == {METRICS[task]: pytest.approx(float(score))}
    assert type(scores[METRICS[task]]) is float


SHARED = pytest.mark.parametrize('is_shared', [False, True])
CALLS = pytest.mark.parametrize('call', ['loss', 'score'])
Y, MASK = torch.arange(N) % 3, torch.arange(N) < 7
BAD_MASKS = [
    (MASK & False, ValueError, "'mask' must select at least one node (got none)"),
    (MASK.tolist(), TypeError, "'mask' must be a torch.Tensor (got list)"),
    (MASK.float(), TypeError, "'mask' must have dtype torch.bool, or"),
    (MASK.long(), ValueError, 'has a zero or one per node (got torch.int64)'),
    (MASK[1:], ValueError, "'mask' must have one entry per node (got 11 for 12 nodes)"),
    (MASK.view(-1, 1), ValueError, "'mask' must have shape [num_nodes], or"),
    (torch.tensor([N]), ValueError, "'mask' has indices outside 0..11 (got 12..12)"),
    (torch.tensor([-1]), ValueError, "'mask' has indices outside 0..11 (got -1..-1)"),
]


@SHARED
@CALLS
@pytest.mark.parametrize(('mask', 'error', 'text'), BAD_MASKS)
def test_bad_masks(call, is_shared, mask, error, text):
    model, x, y = problem('classification')
    shard = {'shard': RowShard(N)} if is_shared else {}
    if is_shared and call == 'loss' and 'at least one' in text:
        # Another rank may have some.
        text = "'count' must be at least 1 on some rank (got 0 on all)"
    with pytest.raises(error) as info:
        getattr(model, call)(x, y, mask, **shard)
    assert text in str(info.value)


@CALLS
@pytest.mark.parametrize(
    ('y', 'error', 'text'),
    [
        (None, TypeError, r"'y' must be a torch\.Tensor \(got NoneType\)"),
        (Y.double(), TypeError, r"'y' must have dtype torch\.int64 \(got torch\.fl"),
        (Y[:9], ValueError, r"'y' must have one entry per node \(got 9 for 12 nodes\)"),
        (Y.view(-1, 1), ValueError, r"'y' must have shape \[num_nodes\] \(got \[12, 1"),
        (Y + 1, ValueError, r"'y' has labels outside 0\.\.2 .* \(got 1\.\.3\)"),
        (Y - 1, ValueError, r"'y' has labels outside 0\.\.2 .* \(got -1\.\.1\)"),
    ],
)
def test_bad_labels(call, y, error, text):
    model, x, _ = problem('classification')
    with pytest.raises(error, match=text):
        getattr(model, call)(x, y)


@pytest.mark.parametrize('missing', [-1, -100, 3])
def test_labels_of_other_nodes_are_not_read(missing):
    def loss(y, mask):
        torch.manual_seed(1)
        return GSLNet(IN, 8, 2, 3).loss(torch.rand(N, IN), y, mask)

    expected = loss(Y, MASK)
    hidden = Y.masked_fill(~MASK, missing)
    assert torch.equal(loss(hidden, MASK), expected)
    assert torch.equal(loss(hidden, MASK.nonzero().flatten()), expected)
    with pytest.raises(ValueError, match=r"'y' has labels outside 0\.\.2"):
        loss(hidden, None)


def modes(model):
    return [module.training for module in model.modules()]


@pytest.mark.parametrize('training', [True, False])
def test_evaluation_leaves_the_mode_as_it_was(training):
    """A part whose mode is another one, such as a frozen one, keeps it as well."""
    x = torch.ones(N, IN).double()
    model = Plain('regression').train(training)
    model.frozen.train(not training)
    before = modes(model)
    assert len(set(before)) == 2
    out = model.predict(x, factor=2.0)
    torch.testing.assert_close(out, 2 * model.lin(x))  # Nothing is dropped.
    assert modes(model) == before
    with pytest.raises(ValueError, match="'factor' must not be negative"):
        model.predict(x, factor=-1.0)
    assert modes(model) == before


@pytest.mark.parametrize('order', [[0], [1, 0], [2, 0, 1]])
def test_indices_of_all_nodes_are_no_mask(order):
    torch.manual_seed(1)
    model, x = Plain('classification').eval(), torch.rand(len(order), IN).double()
    y, every = torch.tensor(order), torch.ones(len(order), dtype=torch.bool)
    expected = model.loss(x, y, every)
    torch.testing.assert_close(model.loss(x, y, torch.tensor(order)), expected)


@pytest.mark.parametrize('readout', ['mean', 'sum', 'softmax'])
def test_graphs_have_labels(readout):
    x, batch = torch.randn(60, IN), torch.arange(60) // 20
    torch.manual_seed(0)
    net = GSLNet(IN, 8, 2, 2, readout=readout).eval()
    out = net(x, batch=batch)
    assert out.shape == (3, 2)
    for graph in range(3):  # No graph sees another one.
        torch.testing.assert_close(net(x[batch == graph])[0], out[graph])
    net.train().loss(
        x, torch.tensor([0, 1, 0]), torch.arange(3), batch=batch
    ).backward()
    assert f'{net}'.count('readout=') == 1
    assert net.predict(x, batch=batch).shape == (3,)


@pytest.mark.parametrize(
    ('task', 'y', 'text'),
    [
        ('regression', Y.double(), r"'y' must have shape \[12, 2\] \(got \[12\]\)"),
        ('regression', torch.full((N, 2), torch.nan), "'y' must be finite where 'mask"),
        ('regression', [1.0] * N, r"'y' must be a torch.Tensor \(got list\)"),
        ('binary', torch.full((N,), 2), r"'y' must hold zeros and ones .*\(got 2.0\)"),
        ('multilabel', torch.ones(N), r"'y' must have shape \[12, 4\] \(got \[12\]\)"),
        ('regression', torch.ones(N, 2) * 1j, "'y' must hold real numbers"),
    ],
)
def test_labels_of_another_task(task, y, text):
    model, x, _ = problem(task)
    with pytest.raises((TypeError, ValueError), match=text):
        model.loss(x, y)


def test_scores_of_labels_that_do_not_vary():
    x, y = torch.rand(N, IN), torch.full((N,), 2.0)
    model = GSLNet(IN, 8, 2, 1, task='regression')
    assert model.score(x, y)['r2'] == r2_score(y, model.predict(x)) == 0
    assert model.score(x, model.predict(x), torch.tensor([3]))['r2'] == 1
    both = torch.stack([y, torch.rand(N)], dim=1)
    model = GSLNet(IN, 8, 2, 2, task='regression')
    expected = r2_score(both, model.predict(x))
    assert model.score(x, both)['r2'] == pytest.approx(expected, rel=1e-5)


def test_a_score_without_ones():
    model = GSLNet(IN, 8, 1, 2, task='multilabel').requires_grad_(False)
    for parameter in model.parameters():
        parameter.zero_()
    model.convs[-1].bias.fill_(-1.0)
    assert model.score(torch.rand(60, IN), torch.zeros(60, 2)) == {'micro_f1': 0}


def test_a_readout_keeps_the_outputs():
    model = GSLNet(IN, 8, 2, 3, readout=['mean', 'max'])
    with pytest.raises(ValueError, match="'readout' must keep the 3 channels"):
        model(torch.rand(60, IN))


def test_targets_are_scored_with_all_of_their_digits(monkeypatch):
    """Those of a model in single precision are far from zero, and rounded."""
    y = 1e9 + torch.arange(60, dtype=torch.double)
    model = GSLNet(IN, 8, num_layers=1, out_channels=1, task='regression')
    out = y.float().unsqueeze(1)
    mask = torch.ones(60, dtype=torch.bool)
    monkeypatch.setattr(model, 'forward', lambda out: out)
    r2 = model.score(out, y, mask)['r2']
    assert r2 == pytest.approx(r2_score(y, out[:, 0].double()))
    assert r2 < 0.99
    assert model._label_loss(out, y, mask).dtype == torch.float32
