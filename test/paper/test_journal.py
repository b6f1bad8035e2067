from __future__ import annotations

from pathlib import Path

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
