from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

import journal
import optuna
import pytest
from journal import open_journal

pytestmark = pytest.mark.filterwarnings('ignore::optuna.exceptions.ExperimentalWarning')


def study_of(path: Path) -> optuna.Study:
    storage = open_journal(path)
    return optuna.create_study(storage=storage, study_name='s', load_if_exists=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / 'found' / 'search.journal'
    study = study_of(path)
    for value in (1.0, 2.0):
        study.tell(study.ask(), value)
    return path


def test_round_trip(path: Path) -> None:
    before = path.read_bytes()
    open_journal(path)
    assert path.read_bytes() == before
    assert [trial.value for trial in study_of(path).trials] == [1.0, 2.0]


def test_a_torn_line_is_cut_off(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-15])
    open_journal(path)
    assert path.read_bytes() == whole[: whole.rstrip().rfind(b'\n') + 1]
    study = study_of(path)
    assert [trial.value for trial in study.trials] == [1.0, None]
    study.tell(study.ask(), 3.0)
    assert [t.value for t in study_of(path).trials] == [1.0, None, 3.0]


def test_damage(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(''.join([lines[0], lines[1][:-9] + '\n', *lines[2:]]))
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"search\.journal' is damaged in line 2: "):
        open_journal(path)
    assert path.read_bytes() == before


HOLDER = """
import os, signal
from pathlib import Path
import journal
journal._repair = lambda path: os.kill(os.getpid(), signal.SIGKILL)
journal.open_journal(Path('found/search.journal'))
"""


def test_a_killed_process_does_not_keep_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = path.parent.parent
    monkeypatch.chdir(root)
    # As users type it, relative to where they are.
    words = [sys.executable, '-W', 'ignore', '-c', HOLDER]
    paths = {'PYTHONPATH': str(Path(journal.__file__).parent)}
    done = subprocess.run(words, cwd=root, env=os.environ | paths, check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(path.parent.glob('*.lock'))
    brief = functools.partial(journal.JournalFileSymlinkLock, grace_period=3)
    monkeypatch.setattr(journal, 'JournalFileSymlinkLock', brief)
    open_journal(path.relative_to(root))
    assert not list(path.parent.glob('*.lock'))
