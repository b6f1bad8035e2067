from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import store
from archive import Record, add_to_archive, remove_from_archive
from config import RunConfig
from files import read_json, write_json
from store import Store

CONFIG = RunConfig('wine', 'mlp', 0)
OTHER = RunConfig('wine', 'mlp', 1)


def finish(store: Store, config: RunConfig, test: float = 0.5) -> None:
    folder = store.folder(config)
    start = {'command': 'python run.py', 'time': 'now', 'torch': '2'}
    write_json(folder / 'about.json', {'starts': [start], 'seconds': 1.0})
    outcome = {'status': 'done', 'test': test}
    write_json(folder / 'result.json', {'config': config.to_dict(), **outcome})


def test_record(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.record(CONFIG) is None
    finish(store, CONFIG)
    assert store.record(CONFIG) == {
        'config': CONFIG.to_dict(),
        'outcome': {'status': 'done', 'test': 0.5},
        'cost': {'seconds': 1.0},
        'environment': {'torch': '2'},
    }
    assert store.missing([CONFIG, OTHER]) == [OTHER]


@pytest.mark.parametrize('name', ['result.json', 'about.json'])
@pytest.mark.parametrize('damage', ['truncated', 'changed', 'absent'])
def test_damaged_runs_count_as_missing(tmp_path: Path, name: str, damage: str) -> None:
    store = Store(tmp_path)
    finish(store, CONFIG)
    path = store.folder(CONFIG) / name
    text = path.read_text()
    if damage == 'absent':
        path.unlink()
    else:
        path.write_text(text[:-9] if damage == 'truncated' else text.replace('0', '7'))
    assert store.missing([CONFIG]) == [CONFIG]


def test_result_of_another_config(tmp_path: Path) -> None:
    store = Store(tmp_path)
    finish(store, CONFIG)
    path = store.folder(CONFIG) / 'result.json'
    content = read_json(path)
    assert content is not None
    write_json(path, content | {'config': OTHER.to_dict()})
    assert store.record(CONFIG) is None


def test_archive_replaces_the_folders(tmp_path: Path) -> None:
    store = Store(tmp_path)
    finish(store, CONFIG)
    store.collect([CONFIG, OTHER])
    before = store.record(CONFIG)
    for path in store.folder(CONFIG).iterdir():
        path.unlink()
    assert store.record(CONFIG) == Store(tmp_path).record(CONFIG) == before
    assert Store(tmp_path).missing([CONFIG, OTHER]) == [OTHER]
    assert Store(tmp_path, archives_only=True).record(CONFIG) == before


def test_archives_only(tmp_path: Path) -> None:
    """As in a clone: a run that is not collected is not there."""
    store = Store(tmp_path)
    finish(store, CONFIG, test=0.5)
    store.collect([CONFIG])
    finish(store, CONFIG, test=0.75)
    finish(store, OTHER)
    clone = Store(tmp_path, archives_only=True)
    record = clone.record(CONFIG)
    assert record is not None
    assert record['outcome']['test'] == 0.5
    assert clone.record(OTHER) is None


def test_one_archive_for_each_data_set(tmp_path: Path) -> None:
    store = Store(tmp_path)
    elsewhere = RunConfig('../my data.csv', 'mlp', 0, label='y')
    for config in (CONFIG, OTHER, elsewhere):
        finish(store, config)
    store.collect([CONFIG, elsewhere])
    store.collect([OTHER])
    names = {path.name for path in tmp_path.glob('*.json')}
    assert names == {'wine.runs.json', '_my_data.csv.runs.json'}
    assert Store(tmp_path, archives_only=True).missing([CONFIG, OTHER, elsewhere]) == []


def test_environment_names_all_commits_of_a_resumed_run(tmp_path: Path) -> None:
    store = Store(tmp_path)
    finish(store, CONFIG)
    starts = [{'git_commit': name, 'time': 'now'} for name in ('a', 'b', 'a', 'c')]
    write_json(store.folder(CONFIG) / 'about.json', {'starts': starts})
    record = store.record(CONFIG)
    assert record is not None
    assert record['environment'] == {
        'git_commit': 'c',
        'git_commits_before': ['a', 'b'],
    }


def test_changes_of_any_start_are_told(tmp_path: Path) -> None:
    store = Store(tmp_path)
    finish(store, CONFIG)
    starts = [{'git_commit': 'a', 'git_changes': changes} for changes in (True, False)]
    write_json(store.folder(CONFIG) / 'about.json', {'starts': starts})
    record = store.record(CONFIG)
    assert record is not None
    assert record['environment'] == {'git_commit': 'a', 'git_changes': True}


def test_other_json_files_are_no_archives(tmp_path: Path) -> None:
    (tmp_path / 'cost.json').write_text('{}')
    assert Store(tmp_path).missing([CONFIG]) == [CONFIG]


def test_folder_stays_inside(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for dataset in ('../../etc/x.csv', '/etc/x.csv', '..', 'a\\b.csv'):
        folder = store.folder(RunConfig(dataset, 'mlp', 0)).resolve()
        assert folder.is_relative_to(tmp_path / 'runs')
        assert len(folder.relative_to(tmp_path).parts) == 4


def out_of_memory(store: Store, config: RunConfig, limit: float) -> None:
    finish(store, config)
    outcome = {'status': 'oom', 'detail': 'OOM', 'memory_limit': limit}
    content = {'config': config.to_dict(), **outcome}
    write_json(store.folder(config) / 'result.json', content)


def test_less_memory_changes_no_result(tmp_path: Path) -> None:
    """Of a small machine, into whose folder an archive of a larger one came since."""
    small, large = Store(tmp_path / 'small'), Store(tmp_path / 'large')
    for config, test in ((CONFIG, 0.75), (OTHER, None)):
        out_of_memory(small, config, 8.0)
        if test is None:
            out_of_memory(large, config, 24.0)
        else:
            finish(large, config, test)
    small.collect([CONFIG])
    large.collect([CONFIG, OTHER])
    archive = large.archive(CONFIG).read_bytes()
    small.archive(CONFIG).write_bytes(archive)
    again = Store(tmp_path / 'small')
    assert again.missing([CONFIG, OTHER], memory_limit=16.0) == []
    again.collect([CONFIG, OTHER])
    assert again.archive(CONFIG).read_bytes() == archive
    # Also where the archive came after this store had read its own.
    small.collect([CONFIG, OTHER])
    assert small.archive(CONFIG).read_bytes() == archive
    # More memory does change it.
    out_of_memory(again, OTHER, 32.0)
    assert again.missing([OTHER], memory_limit=32.0) == []


def test_only_finished_runs_leave_no_checkpoint(tmp_path: Path) -> None:
    store = Store(tmp_path)
    held = RunConfig('wine', 'mlp', 2)
    for config in (CONFIG, OTHER, held):
        finish(store, config)
        (store.folder(config) / 'checkpoint.pt').write_text('state')
    (store.folder(OTHER) / 'result.json').unlink()
    with store.claim(held):
        store.remove_leftovers([CONFIG, OTHER, held, RunConfig('wine', 'mlp', 3)])
    left = [(store.folder(c) / 'checkpoint.pt').exists() for c in (CONFIG, OTHER, held)]
    assert left == [False, True, True]
    assert not store.folder(RunConfig('wine', 'mlp', 3)).exists()


def test_forget(tmp_path: Path) -> None:
    store = Store(tmp_path)
    out_of_memory(store, CONFIG, 8.0)
    finish(store, OTHER)
    store.collect([CONFIG, OTHER])
    again = Store(tmp_path)
    again.forget([CONFIG, OTHER], 'timeout')
    assert again.missing([CONFIG, OTHER]) == []
    again.forget([CONFIG, OTHER], 'oom')
    for found in (again, Store(tmp_path), Store(tmp_path, archives_only=True)):
        assert found.missing([CONFIG, OTHER]) == [CONFIG]


def test_what_another_process_forgot_stays_forgotten(tmp_path: Path) -> None:
    """Even by one that has seen it: what was done since must not be lost."""
    out_of_memory(Store(tmp_path), CONFIG, 8.0)
    Store(tmp_path).collect([CONFIG])
    other = Store(tmp_path)
    assert other.missing([CONFIG]) == []
    Store(tmp_path).forget([CONFIG], 'oom')
    checkpoint = other.folder(CONFIG) / 'checkpoint.pt'
    checkpoint.write_text('state')
    assert other.missing([CONFIG]) == [CONFIG]
    other.collect([CONFIG])
    other.remove_leftovers([CONFIG])
    assert checkpoint.exists()
    assert Store(tmp_path).missing([CONFIG]) == [CONFIG]


def test_forgetting_while_another_process_collects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = Store(tmp_path), Store(tmp_path)
    finish(first, CONFIG)

    def add(path: Path, records: Iterable[Record]) -> int:
        # The other one has seen the result, and waits for the archive.
        first.forget([CONFIG], 'done')
        return add_to_archive(path, records)

    monkeypatch.setattr(store, 'add_to_archive', add)
    other.collect([CONFIG])
    assert Store(tmp_path).missing([CONFIG]) == [CONFIG]

    # The first one has deleted the result, and waits for the archive.
    def remove(path: Path, name: str) -> None:
        other.collect([CONFIG])
        remove_from_archive(path, name)

    monkeypatch.undo()
    finish(first, CONFIG)
    first.collect([CONFIG])
    monkeypatch.setattr(store, 'remove_from_archive', remove)
    first.forget([CONFIG], 'done')
    assert Store(tmp_path).missing([CONFIG]) == [CONFIG]


HOLD = """
import sys
from pathlib import Path
from config import RunConfig
from store import Store
with Store(Path(sys.argv[1])).claim(RunConfig('wine', 'mlp', 0)) as is_ours:
    print(is_ours, flush=True)
    sys.stdin.read()
"""


def test_claim_excludes_and_falls_with_its_process(tmp_path: Path) -> None:
    folder = Path(sys.modules['store'].__file__ or '').parent
    holder = subprocess.Popen(
        [sys.executable, '-c', HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={'PYTHONPATH': str(folder), 'PATH': ''},
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == 'True\n'
    store = Store(tmp_path)
    with store.claim(CONFIG) as is_ours:
        assert not is_ours
    with store.claim(OTHER) as is_ours:
        assert is_ours
    holder.kill()
    holder.communicate()
    with store.claim(CONFIG) as is_ours:
        assert is_ours
