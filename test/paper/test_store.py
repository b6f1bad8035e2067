from concurrent.futures import ThreadPoolExecutor

import pytest

from reproduction import store as module
from reproduction.experiments import RunConfig
from reproduction.store import Store, add_to_archive, read_archive

CONFIG, OTHER = (RunConfig('wine', 'mlp', seed) for seed in range(2))
DONE = {'status': 'done', 'test': 0.5}


def finish(store, config, test=0.5):
    start = {'command': 'python run.py', 'time': 'now', 'torch': '2'}
    store.finish(config, DONE | {'test': test}, {'starts': [start], 'seconds': 1.0})


def record(seed, test=0.5, commit='abc', **changes):
    return {
        'config': RunConfig('wine', 'mlp', seed, **changes).to_dict(),
        'outcome': {'status': 'done', 'test': test},
        'cost': {'seconds': 1.5},
        'environment': {'git_commit': commit},
    }


def key(item):
    return str(RunConfig(**item['config']))


@pytest.fixture
def path(tmp_path):
    return tmp_path / f'a{module.ARCHIVE}'


def test_an_archive_replaces_and_keeps(path):
    assert read_archive(path) == {}
    records = [record(1), record(0, commit='def'), record(0, lr=0.5)]
    add_to_archive(path, records)
    assert read_archive(path) == {key(item): item for item in records}
    changed = [record(1, test=0.9), record(2)]
    add_to_archive(path, changed)
    assert read_archive(path) == {key(item): item for item in records + changed}


def test_writers_at_once_lose_nothing(path):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda s: add_to_archive(path, [record(s)]), range(12)))
    assert len(read_archive(path)) == 12


def test_record(tmp_path):
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
def test_damaged_runs_count_as_missing(tmp_path, name):
    store = Store(tmp_path)
    finish(store, CONFIG)
    path = store.folder(CONFIG) / name
    path.write_text(path.read_text()[:-9])
    assert store.missing([CONFIG]) == [CONFIG]
    path.unlink()
    assert store.missing([CONFIG]) == [CONFIG]


def test_archives_replace_the_folders(tmp_path):
    store = Store(tmp_path)
    elsewhere = RunConfig('../my data.csv', 'mlp', 0, label='y')
    (tmp_path / 'cost.json').write_text('{}')  # No archive.
    for config in (CONFIG, OTHER, elsewhere):
        finish(store, config)
    store.collect([CONFIG, elsewhere])
    names = {path.name for path in tmp_path.glob('*.gz')}
    assert names == {'wine.runs.json.gz', '_my_data.csv.runs.json.gz'}
    before = store.record(CONFIG)
    finish(store, CONFIG, test=0.75)
    # In a clone a run that is not collected is not there.
    clone = Store(tmp_path, archives_only=True)
    assert clone.record(CONFIG) == before
    assert clone.missing([CONFIG, OTHER, elsewhere]) == [OTHER]
    for path in store.folder(CONFIG).iterdir():
        path.unlink()
    assert store.record(CONFIG) == Store(tmp_path).record(CONFIG) == before
    store.collect([OTHER])
    assert Store(tmp_path, archives_only=True).missing([CONFIG, OTHER, elsewhere]) == []


@pytest.mark.parametrize(
    ('starts', 'environment'),
    [
        (
            [{'git_commit': name, 'time': 'now'} for name in 'abac'],
            {'git_commit': 'c', 'git_commits_before': ['a', 'b']},
        ),
        (
            [{'git_commit': 'a', 'git_changes': has} for has in (True, False)],
            {'git_commit': 'a', 'git_changes': True},
        ),
    ],
)
def test_environment_of_a_resumed_run(tmp_path, starts, environment):
    store = Store(tmp_path)
    store.finish(CONFIG, DONE, {'starts': starts})
    assert (store.record(CONFIG) or {})['environment'] == environment


def out_of_memory(store, config, limit):
    outcome = {'status': 'oom', 'detail': 'OOM', 'memory_limit': limit}
    store.finish(config, outcome, {'starts': [{}]})


def test_less_memory_changes_no_result(tmp_path):
    """Of a small machine, into whose folder an archive of a larger one came since."""
    small, large = Store(tmp_path / 'small'), Store(tmp_path / 'large')
    for config in (CONFIG, OTHER):
        out_of_memory(small, config, 8.0)
    finish(large, CONFIG, 0.75)
    out_of_memory(large, OTHER, 24.0)
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


def test_only_finished_runs_leave_no_checkpoint(tmp_path):
    store = Store(tmp_path)
    claimed, absent = (RunConfig('wine', 'mlp', seed) for seed in (2, 3))
    for config in (CONFIG, OTHER, claimed):
        finish(store, config)
        (store.folder(config) / 'checkpoint.pt').write_text('state')
    (store.folder(OTHER) / 'result.json').unlink()
    with store.claim(claimed):
        store.remove_leftovers([CONFIG, OTHER, claimed, absent])
    left = [
        (store.folder(c) / 'checkpoint.pt').exists() for c in (CONFIG, OTHER, claimed)
    ]
    assert left == [False, True, True]
    assert not store.folder(absent).exists()


def test_forget(tmp_path):
    store = Store(tmp_path)
    out_of_memory(store, CONFIG, 8.0)
    finish(store, OTHER)
    store.collect([CONFIG, OTHER])
    again = Store(tmp_path)
    again.forget([CONFIG, OTHER], 'timeout')
    assert again.missing([CONFIG, OTHER]) == []
    again.forget([CONFIG, OTHER], 'oom')
    for reader in (again, store, Store(tmp_path, archives_only=True)):
        assert reader.missing([CONFIG, OTHER]) == [CONFIG]
    # What was done since is not lost to a store that has seen the result.
    checkpoint = store.folder(CONFIG) / 'checkpoint.pt'
    checkpoint.write_text('state')
    store.collect([CONFIG])
    store.remove_leftovers([CONFIG])
    assert checkpoint.exists()
    assert Store(tmp_path).missing([CONFIG]) == [CONFIG]


def test_a_claim_excludes(tmp_path):
    store, second_store = Store(tmp_path), Store(tmp_path)
    for _ in range(2):
        with store.claim(CONFIG) as is_first, second_store.claim(CONFIG) as is_second:
            assert (is_first, is_second) == (True, False)
            with second_store.claim(OTHER) as is_other:
                assert is_other
