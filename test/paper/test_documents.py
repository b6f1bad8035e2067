"""The tables of README and documentation are what the script writes."""

import re

import pytest

from reproduction.documents import DOCUMENTS, OWN, RESULTS, fill
from reproduction.settings import PAPER
from reproduction.store import ARCHIVE, Store, read_archive
from reproduction.tables import TABLES


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda path: path.name)
def test_tables_are_what_the_script_writes(path):
    text = path.read_text(encoding='utf-8')
    kind = 'markdown' if path.suffix == '.md' else 'rst'
    filled = fill(text, kind, Store(RESULTS, archives_only=True))
    assert filled.text == text
    for name, rows in filled.files.items():
        assert (path.parent / name).read_text(encoding='utf-8') == rows, name


def test_every_table_stands_in_a_document():
    pages = '\n'.join(path.read_text(encoding='utf-8') for path in DOCUMENTS)
    found = re.findall(r'^(?:\.\.|<!--) begin (\w+)', pages, re.M)
    assert sorted(found) == sorted([*TABLES, *OWN])


def test_results_are_of_committed_code_and_one_thread():
    # A user's own runs may stand beside them.
    for path in (RESULTS / f'{name}{ARCHIVE}' for name in PAPER):
        assert path.exists()
        for name, record in read_archive(path).items():
            assert not record['environment']['git_changes'], name
            assert record['cost']['threads'] == 1, name
            # None stands in the archive of another data set.
            assert path.name == f'{record["config"]["dataset"]}{ARCHIVE}'
