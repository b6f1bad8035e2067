"""Runs that choose the scale of the similarity on validation nodes."""

from unittest import mock

import pytest

from reproduction import training
from reproduction.experiments import make_config
from reproduction.scales import SCALES, ScaleRun
from reproduction.training import HIDDEN_LABEL
from torch_geometric_gsl import GumbelKNNSampler


def auto(method='gau_sim', **changes):
    values = {'epochs': 6, 'eval_every': 2, 'lr': 0.01, 'hidden_channels': 8, 'k': 4}
    return make_config('wine', method, 1, scale='auto', **(values | changes))


def scale_of(model):
    scales = {m.scale for m in model.modules() if isinstance(m, GumbelKNNSampler)}
    return scales.pop()


def fields(run):
    state = {k: v.tolist() for k, v in run.best_state.items()}
    return run.scale, run.epoch, run.chosen.history, run.chosen.best, state


def test_resumes_at_any_scale(tmp_path, data):
    config = auto('gau_sim_t', num_transition_nodes=5)
    whole = ScaleRun(config, data, tmp_path / 'whole')
    assert not whole.resume()
    assert whole.train() == whole.status == 'done'
    # Six epochs with each of the scales.
    assert whole.epoch == 6 * len(SCALES)
    for number in (2, 9):
        folder = tmp_path / str(number)
        first = ScaleRun(config, data, folder, checkpoint_seconds=0)
        effects = [None] * number + [KeyboardInterrupt]
        with pytest.raises(KeyboardInterrupt):
            first.train(mock.Mock(side_effect=effects))
        second = ScaleRun(config, data, folder)
        assert second.resume()
        assert second.epoch == number
        watch = mock.Mock()
        second.train(watch)
        # What a checkpoint holds is not trained again.
        assert watch.call_count == whole.epoch - number
        assert fields(second) == fields(whole)
        assert second.score(data) == whole.score(data)


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
    run = ScaleRun(auto(epochs=2), data, tmp_path)
    run.train()
    assert seen == list(SCALES)
    assert run.scale == 3.0
    outcome = run.score(data)
    assert (outcome['scale'], outcome['val'], outcome['epochs']) == (3.0, 0.6, 8)
    assert scale_of(run.model) == 3.0
