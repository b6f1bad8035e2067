from __future__ import annotations

from pathlib import Path
from typing import Any

import execute as execution
import provenance
import pytest
import torch
from files import read_json, read_tensors
from settings import make_config
from store import Store
from torch_geometric.data import Data

QUICK: dict[str, Any] = {'epochs': 2, 'eval_every': 1}


def run(tmp_path: Path, data: Data, seed: int = 0) -> tuple[Store, Any, Any]:
    store = Store(tmp_path)
    config = make_config('wine', 'mlp', seed, **QUICK)
    return store, config, execution.execute(config, lambda: data, store, lambda m: None)


def test_folder(tmp_path: Path, data: Data) -> None:
    store, config, record = run(tmp_path, data)
    folder = store.folder(config)
    names = {path.name for path in folder.iterdir()}
    assert names == {
        *('config.json', 'about.json', 'metrics.csv', 'model.pt', 'result.json')
    }
    assert read_json(folder / 'config.json') == config.to_dict()
    (start,) = (read_json(folder / 'about.json') or {})['starts']
    assert {'command', 'torch', 'git_commit', 'time', 'device'} <= start.keys()
    assert record['outcome'].keys() == {
        *('status', 'val', 'test', 'best_epoch', 'epochs')
    }
    assert record['cost'].keys() == {'seconds', 'parameters', 'threads'}
    assert read_tensors(folder / 'model.pt') is not None


def test_a_checkpoint_is_taken_up_and_told(tmp_path: Path, data: Data) -> None:
    store = Store(tmp_path)
    config = make_config('wine', 'mlp', 0, epochs=6, eval_every=1)
    told: list[int] = []

    def kill(metrics: dict[str, float]) -> None:
        if metrics['epoch'] == 4:
            raise KeyboardInterrupt

    def again(watch: Any) -> Any:
        return execution.execute(
            config,
            lambda: data,
            store,
            watch,
            resumed=told.append,
            checkpoint_seconds=0,
        )

    with pytest.raises(KeyboardInterrupt):
        again(kill)
    assert told == []
    seen: list[float] = []
    record = again(lambda metrics: seen.append(metrics['epoch']))
    assert told == [4]
    assert seen == [4, 5]
    assert record['outcome']['epochs'] == 6
    lines = (store.folder(config) / 'metrics.csv').read_text().splitlines()
    assert [line.split(',')[0] for line in lines[1:]] == list('012345')


def test_drafts_of_killed_processes_are_removed(tmp_path: Path, data: Data) -> None:
    store = Store(tmp_path)
    config = make_config('wine', 'mlp', 0, **QUICK)
    draft = store.folder(config) / '.checkpoint.pt.0123abcd.tmp'
    draft.parent.mkdir(parents=True)
    draft.write_bytes(b'half')
    execution.execute(config, lambda: data, store, lambda m: None)
    assert not draft.exists()


def test_model_of_the_first_seed_only(tmp_path: Path, data: Data) -> None:
    store, config, _ = run(tmp_path, data, seed=1)
    assert not (store.folder(config) / 'model.pt').exists()


@pytest.mark.parametrize(
    'error',
    [
        MemoryError(),
        torch.OutOfMemoryError('CUDA out of memory'),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError('std::bad_alloc'),
    ],
)
def test_out_of_memory_is_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, data: Data
) -> None:
    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr(execution, '_train', fail)
    store = Store(tmp_path)
    config = make_config('wine', 'mlp', 0, **QUICK)
    record = execution.execute(
        config, lambda: data, store, lambda m: None, memory_limit=24.0
    )
    expected = {'status': 'oom', 'detail': 'OOM at 24 GB', 'memory_limit': 24.0}
    assert record['outcome'] == expected
    assert store.missing([config], memory_limit=24.0) == []
    # More memory is worth another try.
    assert store.missing([config], memory_limit=25.0) == [config]


def test_other_errors_are_not_swallowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Data
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError('a bug')

    monkeypatch.setattr(execution, '_train', fail)
    with pytest.raises(RuntimeError, match='a bug'):
        run(tmp_path, data)


def test_out_of_memory_beside_other_runs_is_no_result(
    tmp_path: Path, data: Data
) -> None:
    def read() -> Data:
        raise MemoryError

    store = Store(tmp_path)
    config = make_config('wine', 'mlp', 0, **QUICK)
    with pytest.raises(MemoryError):
        execution.execute(config, read, store, lambda m: None, is_alone=False)
    assert store.record(config) is None
    record = execution.execute(config, read, store, lambda m: None, memory_limit=0.25)
    assert record['outcome']['detail'] == 'OOM at 0.25 GB'


def test_the_commit_is_that_of_the_code_that_runs(
    tmp_path: Path, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run(tmp_path / 'before', data)[2]['environment']
    monkeypatch.setattr(provenance, 'git', lambda *words: 'edited since')
    assert run(tmp_path / 'after', data)[2]['environment'] == before
