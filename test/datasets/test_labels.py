"""Classes of a Data object in a file: they are counted as those of other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_gsl.datasets import load_dataset


def save(folder: Path, labels: list[int], **more: Any) -> Path:
    path = folder / 'my.pt'
    x = torch.ones(len(labels), 2)
    torch.save(Data(x=x, y=torch.tensor(labels), **more), path)
    return path


@pytest.mark.parametrize(
    ('labels', 'y'),
    [
        ([0, 1, 100_000, 1], [0, 1, 2, 1]),
        ([10, 2, 10, 2], [1, 0, 1, 0]),
        ([2, 0, 1, 1], [2, 0, 1, 1]),
        ([2**62, 0, 3, 3], [2, 0, 1, 1]),
    ],
)
def test_every_kind_of_file_counts_the_classes(
    tmp_path: Path, labels: list[int], y: list[int]
) -> None:
    rows = ''.join(f'1,{label}\n' for label in labels)
    (tmp_path / 'my.csv').write_text('a,y\n' + rows)
    np.savez(tmp_path / 'my.npz', x=np.ones((len(labels), 2)), y=np.array(labels))
    save(tmp_path, labels)
    for name, label in (('my.csv', 'y'), ('my.npz', 'y'), ('my.pt', None)):
        data = load_dataset(tmp_path / name, label=label)
        assert data.y.tolist() == y, name
        assert data.y.dtype == torch.int64
        assert data.class_names == [str(label) for label in sorted(set(labels))]


@pytest.mark.parametrize(
    ('labels', 'class_names', 'y'),
    [
        ([0, 1, 2, 1], ['a', 'b', 'c'], [0, 1, 2, 1]),
        # One name for each class, in their order.
        ([1, 2, 3, 2], ['a', 'b', 'c'], [0, 1, 2, 1]),
        ([0, 7, 0, 7], ('a', 'b'), [0, 1, 0, 1]),
        # One name for each number, of which one has no row.
        ([0, 2, 0, 2], ['a', 'b', 'c'], [0, 2, 0, 2]),
        ([1, 2, 3, 2], ['none', 'a', 'b', 'c'], [1, 2, 3, 2]),
    ],
)
def test_class_names(
    tmp_path: Path, labels: list[int], class_names: list[str], y: list[int]
) -> None:
    data = load_dataset(save(tmp_path, labels, class_names=class_names))
    assert data.y.tolist() == y
    assert data.class_names == list(class_names)


@pytest.mark.parametrize(
    ('class_names', 'text'),
    [
        (
            ['a'],
            r"for each of the 2 classes of 'y', or for each number from 0 to 3 \(got 1 "
            r'names\)',
        ),
        (['a'] * 3, r'\(got 3 names\)'),
        (['a'] * 5, r'\(got 5 names\)'),
        ([], r'\(got 0 names\)'),
        ('ab', r'be a list \(got str\)'),
        ({0: 'a', 3: 'b'}, r'be a list \(got dict\)'),
    ],
)
def test_class_names_that_do_not_fit(
    tmp_path: Path, class_names: object, text: str
) -> None:
    path = save(tmp_path, [0, 3, 0, 3], class_names=class_names)
    with pytest.raises(ValueError, match=rf"^'class_names' in '{path}' must .*{text}$"):
        load_dataset(path)
