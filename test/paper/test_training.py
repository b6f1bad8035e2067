"""Trainings of runs: resumed, scored, at several scales, and again in a clone."""

import math
import shutil
from unittest import mock

import pytest
import torch

from reproduction import training
from reproduction.datasets import paper_split
from reproduction.experiments import make_config
from reproduction.run import execute
from reproduction.scales import SCALES, ScaleRun
from reproduction.settings import EVERYTHING, METHODS
from reproduction.store import Store
from reproduction.trained import load_trained, train_again
from reproduction.training import HIDDEN_LABEL, Run
from torch_geometric_gsl import GumbelKNNSampler


def make(method, seed=1, **changes):
    values = {'epochs': 6, 'eval_every': 2, 'lr': 0.01, 'hidden_channels': 8}
    values |= {'pretrain_epochs': 2} if method == 'slaps' else {}
    values |= {'k': 4} if 'k' in make_config('wine', method, 0).options else {}
    return make_config('wine', method, seed, **(values | changes))


def fields(run):
    return {
        'best': run.best,
        'history': run.history,
        'prediction': run.prediction.tolist(),
        'model': {k: v.tolist() for k, v in run.model.state_dict().items()},
    }


@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('is_sparse', [False, True])
def test_each_method_trains_and_resumes(tmp_path, method, is_sparse, data):
    data.x = (data.x * (data.x > 0.5)).to_sparse_csr() if is_sparse else data.x
    undisturbed = Run(make(method), data, tmp_path / 'whole')
    assert undisturbed.train() == 'done'
    assert undisturbed.epoch == 6
    assert len({m['loss'] for m in undisturbed.history}) == 6

    killed = Run(make(method), data, tmp_path / 'parts', checkpoint_seconds=0)
    # In the epoch after the checkpoint of the one before.
    with pytest.raises(KeyboardInterrupt):
        killed.train(mock.Mock(side_effect=[None] * 3 + [KeyboardInterrupt]))
    resumed = Run(make(method), data, tmp_path / 'parts')
    assert resumed.resume()
    assert resumed.epoch == 3
    resumed.train()
    assert fields(resumed) == fields(undisturbed)
    assert resumed.score(data) == undisturbed.score(data)


@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('split_name', ['test', 'val'])
def test_labels_of_others_do_not_train(tmp_path, method, split_name, data):
    mask = paper_split(data, seed=1)[f'{split_name}_mask']
    noise = data.clone()
    noise.y = torch.where(mask, (data.y + 1) % 3, data.y)
    clean_run, noisy_run = (Run(make(method), item, tmp_path) for item in (data, noise))
    # The labels of test nodes are not even there.
    assert bool((clean_run.y == data.y)[mask].any()) == (split_name == 'val')
    for run in (clean_run, noisy_run):
        torch.manual_seed(0)
        run.train()
    assert [m['loss'] for m in clean_run.history] == [
        m['loss'] for m in noisy_run.history
    ]
    if split_name == 'val':
        assert clean_run.least_loss != noisy_run.least_loss
        models = (run.model.state_dict() for run in (clean_run, noisy_run))
        torch.testing.assert_close(*models, rtol=0, atol=0, equal_nan=True)
        return
    assert fields(clean_run) == fields(noisy_run)
    for run, item in ((clean_run, data), (noisy_run, noise)):
        score = run.score(item)
        assert score['val'] == run.best['val']
        hit = (run.prediction == item.y)[mask].double().mean()
        assert score['test'] == float(hit)


def test_score_is_that_of_the_best_epoch(tmp_path, data):
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


def test_a_file_s_own_split_is_used(tmp_path, data):
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
    of_registry = Run(make('mlp'), data, tmp_path)
    assert not torch.equal(of_registry.train_mask, data.train_mask)
    assert 'split' not in of_registry.score(data)
    del data.test_mask
    assert not torch.equal(Run(config, data, tmp_path).train_mask, data.train_mask)


@pytest.mark.parametrize('method', ['mlp', 'neural_gau_sim', 'idgl', 'slaps'])
@pytest.mark.parametrize('eval_every', [1, 9])
def test_divergence_is_a_result(tmp_path, data, method, eval_every):
    """Also where layers refuse the numbers, in a step or in an evaluation."""
    config = make(method, lr=1e30, epochs=9, eval_every=eval_every)
    run = Run(config, data, tmp_path)
    assert run.train() == 'diverged'
    start = config.pretrain_epochs
    assert 1 + start <= run.epoch <= 3 + start
    assert math.isnan(run.history[-1]['loss'])
    run.save()
    assert len((tmp_path / 'metrics.csv').read_text().splitlines()) == 1 + run.epoch
    unscored = {'val': None, 'test': None, 'best_epoch': None, 'epochs': run.epoch}
    assert run.score(data) == unscored
    assert run.best_state == {}


def test_seeds_differ(tmp_path, data):
    runs = []
    for seed in (1, 1, 2):
        runs.append(Run(make('gau_sim', seed=seed), data, tmp_path))
        runs[-1].train()
    losses = [run.history[-1]['loss'] for run in runs]
    assert losses[0] == losses[1] != losses[2]
    assert not torch.equal(runs[0].train_mask, runs[2].train_mask)


def scale_of(model):
    scales = {m.scale for m in model.modules() if isinstance(m, GumbelKNNSampler)}
    return scales.pop()


def test_resumes_at_any_scale(tmp_path, data):
    config = make('gau_sim_t', scale='auto', num_transition_nodes=5)
    undisturbed = ScaleRun(config, data, tmp_path / 'whole')
    assert not undisturbed.resume()
    assert undisturbed.train() == undisturbed.status == 'done'
    # Six epochs with each of the scales.
    assert undisturbed.epoch == 6 * len(SCALES)
    for num_epochs in (2, 9):
        folder = tmp_path / str(num_epochs)
        killed = ScaleRun(config, data, folder, checkpoint_seconds=0)
        effects = [None] * num_epochs + [KeyboardInterrupt]
        with pytest.raises(KeyboardInterrupt):
            killed.train(mock.Mock(side_effect=effects))
        resumed = ScaleRun(config, data, folder)
        assert resumed.resume()
        assert resumed.epoch == num_epochs
        watch = mock.Mock()
        resumed.train(watch)
        # What a checkpoint holds is not trained again.
        assert watch.call_count == undisturbed.epoch - num_epochs
        assert fields(resumed.selected) == fields(undisturbed.selected)
        assert resumed.score(data) == undisturbed.score(data)


def test_validation_alone_chooses(tmp_path, data, monkeypatch):
    best = {1.0: 0.2, 3.0: 0.6, 10.0: 0.6, 30.0: 0.4}
    seen = []

    def evaluate(run):
        scale = scale_of(run.model)
        assert (run.y[~run.train_mask & ~run.val_mask] == HIDDEN_LABEL).all()
        seen.append(scale)
        run.best = {'val': best[scale], 'epoch': run.epoch}
        run.best_state = {k: v.clone() for k, v in run.model.state_dict().items()}
        return {'val': best[scale], 'val_loss': 0.0}

    monkeypatch.setattr(training.Run, '_evaluate', evaluate)
    run = ScaleRun(make('gau_sim', scale='auto', epochs=2), data, tmp_path)
    run.train()
    assert seen == list(SCALES)
    assert run.scale == 3.0
    outcome = run.score(data)
    assert (outcome['scale'], outcome['val'], outcome['epochs']) == (3.0, 0.6, 8)
    assert scale_of(run.model) == 3.0


@pytest.fixture
def store(tmp_path, data, monkeypatch):
    """The run of a few epochs."""
    monkeypatch.setitem(EVERYTHING, 'epochs', 4)
    store = Store(tmp_path / 'results')
    execute(make_config('wine', 'neural_gau_sim', 0), lambda: data, store)
    return store


def test_a_model_that_is_not_there_is_trained_again(store, data, tmp_path, capsys):
    """As in a clone, which has the archive alone."""
    config = make_config('wine', 'neural_gau_sim', 0)
    store.collect([config])
    archive = tmp_path / store.archive(config).name
    shutil.copy(store.root / archive.name, archive)
    before = archive.read_bytes()
    clone = Store(tmp_path)
    record = clone.record(config)
    assert record is not None

    state = load_trained(clone, config, data).state_dict()
    assert 'trained again' in capsys.readouterr().err
    for name, value in load_trained(store, config, data).state_dict().items():
        assert torch.equal(state[name], value)
    load_trained(clone, config, data)
    assert 'trained again' not in capsys.readouterr().err
    # It is no new result.
    assert clone.record(config) == Store(tmp_path).record(config) == record
    assert archive.read_bytes() == before
    assert not (clone.folder(config) / 'result.json').exists()
    with clone.claim(config), pytest.raises(SystemExit, match='another process'):
        train_again(Store(tmp_path), config, data)
