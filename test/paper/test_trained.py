"""Models of finished runs, which are trained again where they are not there."""

import shutil

import pytest
import torch

from reproduction.experiments import make_config
from reproduction.run import execute
from reproduction.settings import EVERYTHING
from reproduction.store import Store
from reproduction.trained import load_trained, train_again


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
