"""Weights of members by their loss on held-back rows."""

import numpy as np
import pytest

from torch_geometric_gsl.sklearn._blend import blend_weights, mean_loss


def draw(target, num_rows, errors, seed=0):
    """Draws targets, and outputs with errors of these sizes."""
    random = np.random.default_rng(seed)
    weight = random.uniform(0.5, 2, num_rows)
    if target == 'numbers':
        y = random.normal(size=(num_rows, 2))
        noise = random.normal(size=(len(errors), num_rows, 2))
        return y + noise * np.reshape(errors, (-1, 1, 1)), y, weight
    y = random.integers(0, 3, num_rows)
    logits = random.normal(size=(len(errors), num_rows, 3))
    rates = np.exp(np.eye(3)[y] / np.reshape(errors, (-1, 1, 1)) + logits)
    return rates / rates.sum(axis=2, keepdims=True), y, weight


def loss_of(outputs, y, weight):
    if y.ndim == 1:
        losses = -np.log(outputs[np.arange(len(y)), y])
    else:
        losses = ((outputs - y) ** 2).mean(1)
    return (losses * weight).sum() / weight.sum()


def objective(w, outputs, y, weight):
    w = np.asarray(w)
    blend = (w[:, None, None] * outputs).sum(axis=0)
    least = min(loss_of(out, y, weight) for out in outputs)
    penalty = 0.02 + 100 / len(y)
    loss = loss_of(blend, y, weight) / least
    return loss + penalty * ((w - 1 / len(w)) ** 2).sum()


@pytest.mark.parametrize('target', ['numbers', 'classes'])
def test_mean_loss(target):
    outputs, y, weight = draw(target, 40, [0.5])
    expected = loss_of(outputs[0], y, weight)
    assert mean_loss(outputs[0], y, weight) == pytest.approx(expected)
    # Impossible classes have a finite loss.
    loss = mean_loss(np.eye(2), np.array([1, 1]), np.array([1, 0]))
    assert loss == pytest.approx(-np.log(1e-7))


@pytest.mark.parametrize('target', ['numbers', 'classes'])
@pytest.mark.parametrize('errors', [[0.5, 0.6], [0.4, 1.0], [1.0, 0.5]])
@pytest.mark.parametrize('num_rows', [60, 3000])
def test_two_members_against_a_grid(target, errors, num_rows):
    rows = draw(target, num_rows, errors)
    w = blend_weights(*rows)
    grid = np.linspace(0, 1, 101)
    values = [objective([share, 1 - share], *rows) for share in grid]
    assert abs(w[0] - grid[np.argmin(values)]) < 0.011
    assert w.sum() == pytest.approx(1)


@pytest.mark.parametrize('target', ['numbers', 'classes'])
@pytest.mark.parametrize('seed', range(4))
def test_no_other_weights_are_better(target, seed):
    random = np.random.default_rng(seed)
    rows = draw(target, 150, random.uniform(0.3, 2, 5), seed)
    w = blend_weights(*rows)
    value = objective(w, *rows)
    candidates = [*np.eye(5), np.full(5, 0.2), *random.dirichlet(np.ones(5), 60)]
    # Negligible weights become zero.
    assert value < min(objective(v, *rows) for v in candidates) + 2e-3
    assert w.min() >= 0
    assert not ((w > 0) & (w < 0.01)).any()


@pytest.mark.parametrize('target', ['numbers', 'classes'])
def test_weights_of_few_rows_are_more_alike(target):
    outputs, y, weight = draw(target, 40, [0.5, 0.7, 1.0])
    spread = []
    for times in (1, 10, 100):
        rows = np.tile(outputs, (1, times, 1)), np.concatenate([y] * times)
        spread.append(np.std(blend_weights(*rows, np.tile(weight, times))))
    assert spread[0] < spread[1] < spread[2]
    assert spread[0] < 0.5 * spread[2]


@pytest.mark.parametrize('target', ['numbers', 'classes'])
def test_weights_of_rows_count(target):
    random = np.random.default_rng(0)
    outputs, y, _ = draw(target, 4000, [0.5, 0.5])
    half = np.arange(4000) < 2000
    wrong = outputs[:, random.permutation(4000)]
    outputs = np.stack(
        [
            np.where(half[:, None], outputs[0], wrong[0]),
            np.where(half[:, None], wrong[1], outputs[1]),
        ]
    )
    for weight, expected in ((1.0 * half, [1, 0]), (1.0 * ~half, [0, 1])):
        w = blend_weights(outputs, y, weight)
        assert w @ expected > 0.8
    unit = 1e-30
    expected = blend_weights(outputs, y, 1 + half)
    w = blend_weights(outputs, y, unit * (1 + half))
    np.testing.assert_allclose(w, expected, atol=1e-6)


@pytest.mark.parametrize('error', [1e2, 1e4, 1e10, 1e200])
def test_a_wild_member_has_no_weight(error):
    rows = draw('numbers', 200, [0.5, 0.6])
    expected = blend_weights(*rows)
    outputs, y, weight = rows
    with np.errstate(over='ignore'):
        outputs = np.concatenate([outputs, y[None] + error])
        w = blend_weights(outputs, y, weight)
    assert w[2] == 0
    # The penalty knows of the third only below a ratio.
    np.testing.assert_allclose(w[:2], expected, atol=0.05)


@pytest.mark.parametrize('is_class', [True, False])
def test_members_without_an_error(is_class):
    y = np.arange(60) % 2 if is_class else np.arange(60.0)[:, None]
    right = np.eye(2)[y] if is_class else y
    wrong = np.full((60, 2), 0.5) if is_class else y[::-1]
    outputs = np.stack([wrong, right])
    w = blend_weights(outputs, y, np.ones(60))
    assert w[1] > 0.95
    # A constant target, known exactly by all.
    y = np.ones_like(y)
    right = np.eye(2)[y] if is_class else y
    outputs = np.stack([right, right])
    w = blend_weights(outputs, y, np.ones(60))
    np.testing.assert_allclose(w, 0.5)
    np.testing.assert_array_equal(blend_weights(outputs[:1], y, np.ones(60)), [1])
