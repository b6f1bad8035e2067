"""What a model is trained to tell: losses, predictions and scores of tasks."""

import pytest
import torch
from sklearn.metrics import r2_score
from torch.nn import functional as F

import torch_geometric_gsl as gsl
from torch_geometric_gsl import GSLNet

N, IN = 60, 5
TASKS = {'classification': 3, 'regression': 1, 'binary': 1, 'multilabel': 4}
NAMES = {
    'classification': 'accuracy',
    'regression': 'r2',
    'binary': 'accuracy',
    'multilabel': 'micro_f1',
}
BASELINES = {
    'MLPClassifier': gsl.MLPClassifier,
    'KNNGCN': gsl.KNNGCN,
}


def draw(task):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, IN, generator=generator)
    hidden = x @ torch.randn(IN, 4, generator=generator)
    return x, {
        'classification': hidden[:, :3].argmax(dim=1),
        'regression': hidden[:, 0],
        'binary': hidden[:, 0] > 0,
        'multilabel': (hidden > 0).long(),
    }[task]


def make(task, **options):
    torch.manual_seed(0)
    return GSLNet(IN, 16, 2, TASKS[task], task=task, **options)


@pytest.mark.parametrize('task', TASKS)
def test_a_task_is_learned_and_scored(task):
    x, y = draw(task)
    net, mask = make(task, dropout=0.0), torch.arange(N) < 40
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        net.loss(x, y, mask).backward()
        optimizer.step()
    ((metric, score),) = net.score(x, y, ~mask).items()
    assert score > 0.7
    prediction = net.predict(x)
    expected = METRICS[task](prediction[~mask], y[~mask])
    assert (metric, pytest.approx(float(expected))) == (NAMES[task], score)
    assert prediction.shape == y.shape


def r2(prediction, target):
    return 1 - F.mse_loss(prediction, target) / target.var(correction=0)


def accuracy(prediction, target):
    return (prediction == target).double().mean()


def f1(prediction, target):
    hits = (prediction * target).sum()
    precision, recall = hits / prediction.sum(), hits / target.sum()
    return 2 * precision * recall / (precision + recall)


METRICS = {
    'classification': accuracy,
    'regression': r2,
    'binary': accuracy,
    'multilabel': f1,
}


@pytest.mark.parametrize('name', BASELINES)
@pytest.mark.parametrize('task', ['regression', 'binary', 'multilabel'])
def test_baselines_follow_the_task(name, task):
    x, y = draw(task)
    torch.manual_seed(0)
    net = BASELINES[name](IN, 8, 2, TASKS[task], task=task)
    net.loss(x, y, torch.arange(30)).backward()
    assert list(net.score(x, y, torch.arange(30, N))) == [NAMES[task]]
    assert net.predict(x).shape == y.shape
    assert f"task='{task}'" in repr(net)


@pytest.mark.parametrize('readout', ['mean', 'sum', 'softmax'])
def test_graphs_have_labels(readout):
    x, batch = torch.randn(N, IN), torch.arange(N) // 20
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
        (
            'regression',
            torch.ones(N, 2),
            r"'y' must have shape \[60, 1\] \(got \[60, 2",
        ),
        ('regression', torch.full((N,), torch.nan), "'y' must be finite where 'mask'"),
        ('regression', [1.0] * N, r"'y' must be a torch.Tensor \(got list\)"),
        ('binary', torch.full((N,), 2), r"'y' must hold zeros and ones .*\(got 2.0\)"),
        ('multilabel', torch.ones(N), r"'y' must have shape \[60, 4\] \(got \[60\]\)"),
        ('regression', torch.ones(N) * 1j, "'y' must hold real numbers"),
    ],
)
def test_labels_of_another_task(task, y, text):
    with pytest.raises((TypeError, ValueError), match=text):
        make(task).loss(torch.randn(N, IN), y, torch.arange(N))


def test_bad_options():
    with pytest.raises(ValueError, match=r"'task' must be one of .*\(got 'ranking'\)"):
        GSLNet(IN, 8, 2, 2, task='ranking')
    text = r"'out_channels' must be 1 with task='binary' \(got 2\)"
    for kind in (GSLNet, gsl.MLPClassifier):
        with pytest.raises(ValueError, match=text):
            kind(IN, 8, 2, 2, task='binary')


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
    assert model.score(torch.rand(N, IN), torch.zeros(N, 2)) == {'micro_f1': 0}


def test_a_readout_keeps_the_outputs():
    model = GSLNet(IN, 8, 2, 3, readout=['mean', 'max'])
    with pytest.raises(ValueError, match="'readout' must keep the 3 channels"):
        model(torch.rand(N, IN))


def test_targets_are_scored_with_all_of_their_digits():
    """Those of a model in single precision are far from zero, and rounded."""
    y = 1e9 + torch.arange(60, dtype=torch.double)
    model = GSLNet(IN, 8, num_layers=1, out_channels=1, task='regression')
    out = y.float().unsqueeze(1)
    mask = torch.ones(60, dtype=torch.bool)
    found = model._scored(out, y, mask)['r2']
    assert found == pytest.approx(r2_score(y, out[:, 0].double()))
    assert found < 0.99
    assert model._label_loss(out, y, mask).dtype == torch.float32
