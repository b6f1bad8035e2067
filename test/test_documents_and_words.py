"""The example of two types of nodes, on a small table of its own."""

import importlib.util
import re
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

SCRIPT = Path(__file__).parents[1] / 'examples' / 'documents_and_words.py'


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location('documents_and_words', SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def table(tmp_path):
    """Documents of three classes, each with words of its own."""
    rng = np.random.default_rng(0)
    y = np.arange(130) % 3
    rate = 0.05 + 0.8 * (np.arange(18) % 3 == y[:, None])
    path = tmp_path / 'bags.npz'
    np.savez(path, x=(rng.random((130, 18)) < rate).astype(np.float32), y=y)
    return path


def test_prints_a_table_and_draws(example, table, tmp_path, capsys):
    pytest.importorskip('matplotlib')
    picture = tmp_path / 'words.png'
    given = ['--dataset', str(table), '--quick', '--picture', str(picture)]
    with mock.patch.object(sys, 'argv', ['documents_and_words', *given]):
        example.main()
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.strip() == 'test accuracy in %, 2 splits of 120 documents'
    names = [re.fullmatch(r'(\S+) +(\d+\.\d) ± \d+\.\d', line)[1] for line in lines]
    assert names == list(example.MODELS)
    assert picture.stat().st_size > 1000


def test_features_of_words_reproduce_the_table(example, table):
    data = example.load_dataset(str(table))
    hetero = example.add_words(data)
    assert torch.equal(hetero['document'].x, data.x)
    # All directions are kept here, so that their products are those of the columns.
    gram = hetero['word'].x @ hetero['word'].x.t()
    torch.testing.assert_close(gram, data.x.t() @ data.x, rtol=1e-3, atol=1e-3)
