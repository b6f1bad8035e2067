from __future__ import annotations

import csv
import itertools
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from config import RunConfig
from files import read_tensors, write_tensors
from methods import METHODS
from settings import make_config
from torch import Tensor
from torch_geometric.data import Data
from training import HIDDEN_LABEL, Run

from torch_geometric_gsl.datasets import paper_split


def make(method: str, seed: int = 1, **changes: Any) -> RunConfig:
    values = {'epochs': 6, 'eval_every': 2, 'lr': 0.01, 'hidden_channels': 8}
    values |= {'pretrain_epochs': 2} if method == 'slaps' else {}
    values |= {'k': 4} if 'k' in make_config('wine', method, 0).options else {}
    return make_config('wine', method, seed, **(values | changes))


def fields(run: Run) -> dict[str, Any]:
    return {
        'best': run.best,
        'history': run.history,
        'prediction': run.prediction.tolist(),
        'model': {k: v.tolist() for k, v in run.model.state_dict().items()},
    }


@pytest.mark.parametrize('method', METHODS)
def test_each_method_trains_and_resumes(
    tmp_path: Path, method: str, data: Data
) -> None:
    whole = Run(make(method), data, tmp_path / 'whole')
    assert whole.train() == 'done'
    assert whole.epoch == 6
    assert len({m['loss'] for m in whole.history}) == 6

    first = Run(make(method), data, tmp_path / 'parts', checkpoint_seconds=0)
    with pytest.raises(KeyboardInterrupt):
        first.train(interrupt_after(3))
    second = Run(make(method), data, tmp_path / 'parts')
    assert second.resume()
    assert second.epoch == 3
    second.train()
    assert fields(second) == fields(whole)
    assert second.score(data) == whole.score(data)


def interrupt_after(count: int) -> Any:
    """Stops in the epoch after the checkpoint of the one before."""

    def watch(metrics: dict[str, float]) -> None:
        if metrics['epoch'] == count:
            raise KeyboardInterrupt

    return watch


def with_other_labels(data: Data, mask: Tensor) -> Data:
    """The same data, with another of the three classes where the mask holds."""
    other = data.clone()
    other.y = torch.where(mask, (data.y + 1) % 3, data.y)
    return other


@pytest.mark.parametrize('method', METHODS)
def test_test_labels_are_not_seen(tmp_path: Path, method: str, data: Data) -> None:
    test_mask = paper_split(data, seed=1).test_mask
    noise = with_other_labels(data, test_mask)
    runs = []
    for item in (data, noise):
        run = Run(make(method), item, tmp_path)
        runs.append(run)
        assert not bool((run.y == data.y)[test_mask].any())
        run.train()
    assert fields(runs[0]) == fields(runs[1])
    for run, item in zip(runs, (data, noise), strict=True):
        score = run.score(item)
        assert score['val'] == run.best['val']
        hit = (run.prediction == item.y)[test_mask].double().mean()
        assert score['test'] == float(hit)


@pytest.mark.parametrize('method', METHODS)
def test_validation_labels_do_not_train(
    tmp_path: Path, method: str, data: Data
) -> None:
    val_mask = paper_split(data, seed=1).val_mask
    noise = with_other_labels(data, val_mask)
    runs = []
    for item in (data, noise):
        run = Run(make(method), item, tmp_path)
        runs.append(run)
        run.train()
    first, second = runs
    assert first.least_loss != second.least_loss
    assert [m['loss'] for m in first.history] == [m['loss'] for m in second.history]
    models = (run.model.state_dict() for run in runs)
    torch.testing.assert_close(*models, rtol=0, atol=0, equal_nan=True)


def test_score_is_that_of_the_best_epoch(tmp_path: Path, data: Data) -> None:
    run = Run(make('mlp', epochs=30, eval_every=1), data, tmp_path)
    run.train()
    vals = [m['val'] for m in run.history]
    score = run.score(data)
    assert score['val'] == max(vals)
    assert score['best_epoch'] == vals.index(max(vals))
    run.model.load_state_dict(run.best_state)
    prediction = run.model.eval()(data.x).argmax(dim=-1)
    split = paper_split(data, seed=1)
    for name in ('val', 'test'):
        mask = split[f'{name}_mask']
        hit = (prediction == data.y)[mask].double().mean()
        assert score[name] == float(hit)


def test_patience(tmp_path: Path, data: Data) -> None:
    run = Run(make('mlp', epochs=500, eval_every=1, patience=7), data, tmp_path)
    assert run.train() == 'done'
    assert run.epoch < 500
    values = [(-m['val'], m['val_loss']) for m in run.history]
    last = max(
        epoch
        for epoch in range(run.epoch)
        for which in range(2)
        if values[epoch][which] < min([v[which] for v in values[:epoch]], default=1e9)
    )
    assert run.epoch - 1 - last == 7


def test_a_run_killed_after_its_last_checkpoint_stays_at_its_end(
    tmp_path: Path, data: Data
) -> None:
    config = make('mlp', epochs=500, eval_every=1, patience=7)
    run = Run(config, data, tmp_path)
    run.train()
    run.save()
    again = Run(config, data, tmp_path)
    assert again.resume()
    assert again.train() == 'done'
    assert fields(again) == fields(run)
    assert again.score(data) == run.score(data)


@pytest.mark.parametrize('name', ['status', 'least_loss', 'optimizer', 'config'])
def test_a_checkpoint_without_a_part_counts_as_none(
    tmp_path: Path, data: Data, name: str
) -> None:
    run = Run(make('mlp'), data, tmp_path)
    run.save()
    content = read_tensors(tmp_path / 'checkpoint.pt')
    assert content is not None
    del content[name]
    write_tensors(tmp_path / 'checkpoint.pt', content)
    assert not Run(make('mlp'), data, tmp_path).resume()


def test_a_checkpoint_of_another_model_counts_as_none(
    tmp_path: Path, data: Data
) -> None:
    """As after a change of the code under the same setting."""
    run = Run(make('mlp'), data, tmp_path)
    run.train()
    run.save()
    content = read_tensors(tmp_path / 'checkpoint.pt')
    assert content is not None
    name = next(iter(content['model']))
    content['model'][name] = content['model'][name][:-1]
    write_tensors(tmp_path / 'checkpoint.pt', content)
    again = Run(make('mlp'), data, tmp_path)
    before = [value.clone() for value in again.model.state_dict().values()]
    assert not again.resume()
    after = again.model.state_dict().values()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_file_s_own_split_is_used(tmp_path: Path, data: Data) -> None:
    """For every seed; a named data set always has the paper's."""
    position = torch.arange(48)
    data.train_mask, data.val_mask = position < 10, position >= 40
    data.test_mask = (position >= 10) & (position < 40)
    (tmp_path / 'my.pt').write_bytes(b'of any content')
    for seed in (0, 1):
        config = make_config(str(tmp_path / 'my.pt'), 'mlp', seed, epochs=2)
        run = Run(config, data, tmp_path)
        assert torch.equal(run.train_mask, data.train_mask)
        assert torch.equal(run.val_mask, data.val_mask)
        run.train()
        assert (run.y == HIDDEN_LABEL).tolist() == data.test_mask.tolist()
        hit = (run.prediction == data.y)[data.test_mask]
        score = run.score(data)
        assert score['test'] == float(hit.double().mean())
        assert score['split'] == 'given'
    named = Run(make('mlp'), data, tmp_path)
    assert not torch.equal(named.train_mask, data.train_mask)
    assert 'split' not in named.score(data)
    del data.test_mask
    assert not torch.equal(Run(config, data, tmp_path).train_mask, data.train_mask)


def test_last_epoch_is_evaluated(tmp_path: Path, data: Data) -> None:
    run = Run(make('mlp', epochs=5, eval_every=3), data, tmp_path)
    run.train()
    assert [m['epoch'] for m in run.history if 'val' in m] == [2, 4]


def test_time_limit(tmp_path: Path, data: Data) -> None:
    run = Run(make('mlp', epochs=50, time_limit=1e-9), data, tmp_path)
    assert run.train() == 'timeout'
    assert run.epoch == 1
    assert run.score(data)['test'] is None


def test_time_in_which_a_process_waits_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Data
) -> None:
    run = Run(make('mlp', epochs=2, time_limit=100.0), data, tmp_path)
    hours = itertools.count(step=3600)
    monkeypatch.setattr(time, 'monotonic', lambda: float(next(hours)))
    assert run.train() == 'done'
    assert 0 < run.seconds < 100


def test_divergence(tmp_path: Path, data: Data) -> None:
    run = Run(make('mlp'), data, tmp_path)
    with torch.no_grad():
        next(run.model.parameters()).fill_(float('nan'))
    assert run.train() == 'diverged'
    assert run.epoch == 1


def test_seeds_differ(tmp_path: Path, data: Data) -> None:
    runs = []
    for seed in (1, 1, 2):
        runs.append(Run(make('gau_sim', seed=seed), data, tmp_path))
        runs[-1].train()
    losses = [run.history[-1]['loss'] for run in runs]
    assert losses[0] == losses[1] != losses[2]
    assert not torch.equal(runs[0].train_mask, runs[2].train_mask)


def test_checkpoint_of_another_config_is_not_taken(tmp_path: Path, data: Data) -> None:
    Run(make('mlp'), data, tmp_path).save()
    assert Run(make('mlp'), data, tmp_path).resume()
    assert not Run(make('mlp', lr=0.02), data, tmp_path).resume()


def test_metrics(tmp_path: Path, data: Data) -> None:
    run = Run(make('mlp'), data, tmp_path)
    run.train()
    run.save()
    with open(tmp_path / 'metrics.csv', encoding='utf-8', newline='') as file:
        rows = list(csv.DictReader(file))
    assert [int(row['epoch']) for row in rows] == list(range(6))
    assert [float(row['loss']) for row in rows] == [m['loss'] for m in run.history]
    assert [row['val'] != '' for row in rows] == [False, True] * 3


def test_sparse_features(tmp_path: Path, data: Data) -> None:
    data.x = (data.x * (data.x > 0.5)).to_sparse_csr()
    run = Run(make('mlp'), data, tmp_path)
    assert isinstance(run.x, Tensor)
    assert run.x.layout == torch.sparse_csr
    assert run.train() == 'done'


def test_pretraining_weights_the_denoising_loss(
    tmp_path: Path, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(make('slaps', denoising_weight=7.0), data, tmp_path)
    denoiser = run.model.denoiser.first.bias

    def denoising_loss(x: Tensor) -> Tensor:
        return 1 + 0 * denoiser.sum()

    monkeypatch.setattr(run.model, 'denoising_loss', denoising_loss)
    run.train()
    losses = [metrics['loss'] for metrics in run.history]
    assert losses[:2] == [7.0, 7.0]
    assert losses[2] != 7.0
