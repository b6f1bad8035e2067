"""What the paper prints, from `published.csv`."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

PATH = Path(__file__).with_name('published.csv')

#: Table 4: seconds and MB of one epoch on CiteSeer, on an RTX 3090.
COSTS = {
    'idgl': (0.7967, 4358),
    'idgl_anchor': (0.1249, 2986),
    'nodeformer': (0.0463, 1248),
    'lin_sim': (0.1145, 4486),
    'lin_sim_t': (0.0367, 1796),
    'gau_sim': (0.1193, 4618),
    'gau_sim_t': (0.0382, 1816),
    'neural_gau_sim': (0.1238, 4664),
    'neural_gau_sim_t': (0.0393, 1821),
}


class Accuracy(NamedTuple):
    """Mean and standard deviation of 5 runs in %; :obj:`None` for out of memory."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f'{self.mean:.2f} ± {self.std:.2f}'


def accuracies(table: str) -> dict[tuple[int, str, str], Accuracy | None]:
    """A table's entries by K, method and data set; :obj:`None`: out of 24 GB."""
    found: dict[tuple[int, str, str], Accuracy | None] = {}
    with open(PATH, encoding='utf-8', newline='') as file:
        for row in csv.DictReader(file):
            if row.pop('table') != table:
                continue
            k, method = int(row.pop('k')), row.pop('method')
            for dataset, text in row.items():
                if text:
                    found[k, method, dataset] = _parse(text)
    return found


def _parse(text: str) -> Accuracy | None:
    if text == 'OOM':
        return None
    mean, _, std = text.partition(' ± ')
    return Accuracy(float(mean), float(std))
