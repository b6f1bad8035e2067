"""The example of Lightning, with and without it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / 'examples' / 'train_with_lightning.py'


def load():
    spec = importlib.util.spec_from_file_location('train_with_lightning', EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings('ignore')  # Lightning's own.
def test_it_learns(capsys):
    pytest.importorskip('lightning')
    load().main()
    accuracy = float(capsys.readouterr().out.split('test accuracy ')[1].split()[0])
    assert accuracy > 90


def test_it_says_what_it_lacks():
    code = 'import sys, runpy; sys.modules["lightning"] = None; '
    code += f'runpy.run_path({str(EXAMPLE)!r})'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "This example needs Lightning, and is skipped: pip install 'lightning'"
    )
    assert 'Traceback' not in done.stderr


def test_no_example_hides_a_library():
    """Scripts are found by the name of their file before installed packages are."""
    names = {path.stem for path in EXAMPLE.parent.glob('*.py')}
    assert not names & {'lightning', 'torch', 'sklearn', 'faiss', 'numpy', 'scipy'}
