"""Read series of sensors from a folder of a user, and the graph that joins them."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import dense_to_sparse

from torch_geometric_gsl.datasets._labels import to_number

#: The ends of the names of files that hold no series.
ADJACENCY, PLACES, LISTS = 'adj.csv', 'locations.csv', '.txt'


def read_series_folder(folder: Path) -> Data:
    """Read series and their graph as :func:`load_dataset` does for a folder."""
    found: dict[str, list[Path]] = {'series': [], ADJACENCY: [], PLACES: []}
    for path in sorted(folder.glob('*.csv')):
        name = path.name.lower()
        kind = next(
            (end for end in (ADJACENCY, PLACES) if name.endswith(end)), 'series'
        )
        found[kind].append(path)
    for kind, paths in found.items():
        if len(paths) > 1 or (kind == 'series' and not paths):
            what = 'a .csv file of series' if kind == 'series' else f"a file '*{kind}'"
            names = [path.name for path in paths]
            raise ValueError(f"'{folder}' must have one of {what} (got {names})")
    (path,) = found['series']
    header, *rows = _read_lines(path)
    names = [name.strip() for name in header]
    if len({*names} - {''}) != len(names) or not rows:
        raise ValueError(
            f"'{path}' must begin with distinct names of the sensors, and have a line "
            f'for each step (got {len(names)} names and {len(rows)} steps)'
        )
    series = _numbers(path, rows, len(names), first_line=2)
    data = Data(x=series.t().contiguous(), sensors=names)
    for path in found[ADJACENCY]:
        weight = _numbers(path, _read_lines(path), len(names), first_line=1)
        if len(weight) != len(names) or bool((weight < 0).any()):
            raise ValueError(
                f"'{path}' must have {len(names)} lines, one a sensor, of weights that "
                f'are not negative (got {len(weight)} lines)'
            )
        # The line of a sensor lists the weights of the edges that leave it.
        data.edge_index, data.edge_weight = dense_to_sparse(weight.fill_diagonal_(0))
    for path in found[PLACES]:
        data.pos = _places(path, names)
    return data


def _read_lines(path: Path) -> list[list[str]]:
    try:
        with path.open(encoding='utf-8-sig', newline='') as file:
            return [fields for fields in csv.reader(file, strict=True) if fields]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(
            f"'{path}' must be text in UTF-8 with commas ({error})"
        ) from error


def _numbers(path: Path, rows: list[list[str]], width: int, first_line: int) -> Tensor:
    """Return a matrix of finite numbers."""
    values: list[list[float]] = []
    for line, fields in enumerate(rows, first_line):
        if len(fields) != width:
            raise ValueError(
                f"'{path}', line {line} must have {width} fields, one a sensor "
                f'(got {len(fields)})'
            )
        row = [to_number(field) for field in fields]
        for place, value in enumerate(row, 1):
            if not math.isfinite(value):
                raise ValueError(
                    f"'{path}', line {line}, field {place} must be a finite number "
                    f'(got {fields[place - 1]!r})'
                )
        values.append(row)
    return torch.tensor(values, dtype=torch.float64).float()


def _places(path: Path, names: list[str]) -> Tensor:
    """Return latitude and longitude of each sensor, in the order of the series."""
    header, *rows = _read_lines(path) or [[]]
    columns = [name.strip().lower() for name in header]
    wanted = ('sensor_id', 'latitude', 'longitude')
    if missing := [name for name in wanted if name not in columns]:
        raise ValueError(f"'{path}' must have a column '{missing[0]}' (got {columns})")
    places: dict[str, Any] = {}
    for fields in rows:
        named = dict(zip(columns, fields, strict=False))
        places[named['sensor_id'].strip()] = [
            to_number(named.get(name, '')) for name in wanted[1:]
        ]
    if absent := [name for name in names if name not in places]:
        raise ValueError(
            f"'{path}' must have a line for each sensor (not {absent[0]!r})"
        )
    pos = torch.tensor([places[name] for name in names], dtype=torch.float64)
    if not bool(pos.isfinite().all()):
        row = int((~pos.isfinite()).any(dim=1).nonzero()[0])
        raise ValueError(f"'{path}' must place sensor {names[row]!r} by finite numbers")
    return pos
