"""Read sensor series from a user's folder, with their graph."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import dense_to_sparse

from torch_geometric_gsl.datasets._labels import to_number
from torch_geometric_gsl.datasets._table_file import check_width, read_lines

#: Suffixes of files without series.
ADJACENCY, PLACES = 'adj.csv', 'locations.csv'
#: The place in a file and the fields of each line.
Lines = list[tuple[str, list[str]]]


def read_series_folder(folder: Path) -> Data:
    """Read series and their graph for :func:`load_dataset`."""
    found: dict[str, list[Path]] = {'series': [], ADJACENCY: [], PLACES: []}
    for path in sorted(folder.iterdir()):
        name = path.name.lower()
        if not name.endswith('.csv') or not path.is_file():
            continue
        kind = next(
            (end for end in (ADJACENCY, PLACES) if name.endswith(end)), 'series'
        )
        found[kind].append(path)
    for kind, paths in found.items():
        if len(paths) > 1 or (kind == 'series' and not paths):
            what = 'one .csv file of series' if kind == 'series' else f"one '*{kind}'"
            names = [path.name for path in paths]
            raise ValueError(f"'{folder}' must have exactly {what} (got {names})")
    (path,) = found['series']
    lines = _read_lines(path)
    names = [name.strip() for name in lines[0][1]] if lines else []
    if len({*names} - {''}) != len(names) or len(lines) < 2:
        raise ValueError(
            f"'{path}' must start with distinct sensor names, followed by a line "
            f'per step (got {len(names)} names and {max(0, len(lines) - 1)} steps)'
        )
    series = _numbers(lines[1:], len(names))
    data = Data(x=series.t().contiguous(), sensors=names)
    for path in found[ADJACENCY]:
        weight = _numbers(_read_lines(path), len(names))
        if len(weight) != len(names):
            raise ValueError(
                f"'{path}' must have {len(names)} lines, one per sensor (got "
                f'{len(weight)})'
            )
        if bool((weight < 0).any()):
            least = float(weight.min())
            raise ValueError(f"'{path}' must have no negative weights (got {least})")
        # A line lists the weights of the edges that leave a sensor.
        data.edge_index, data.edge_weight = dense_to_sparse(weight.fill_diagonal_(0))
    for path in found[PLACES]:
        data.pos = _places(path, names)
    return data


def _read_lines(path: Path) -> Lines:
    """Return the fields of each line; blank lines are allowed at the end only."""
    lines = list(read_lines(path))
    while lines and not lines[-1][1]:
        lines.pop()
    return lines


def _numbers(lines: Lines, width: int) -> Tensor:
    """Return a matrix of finite numbers."""
    values: list[list[float]] = []
    for where, fields in lines:
        check_width(where, fields, width, ', one per sensor')
        row = [to_number(field) for field in fields]
        for place, value in enumerate(row, 1):
            # Numbers beyond single precision become infinite.
            if not abs(value) <= torch.finfo(torch.float).max:
                raise ValueError(
                    f'{where}, field {place} must be a finite number '
                    f'(got {fields[place - 1]!r})'
                )
        values.append(row)
    return torch.tensor(values, dtype=torch.float64).float()


def _places(path: Path, names: list[str]) -> Tensor:
    """Return latitude and longitude of each sensor, in the order of the series."""
    lines = _read_lines(path)
    columns = [name.strip().lower() for name in lines[0][1]] if lines else []
    wanted = ('sensor_id', 'latitude', 'longitude')
    if missing := [name for name in wanted if name not in columns]:
        raise ValueError(f"'{path}' must have a column '{missing[0]}' (got {columns})")
    place_of = [columns.index(name) for name in wanted]
    places: dict[str, list[float]] = {}
    for where, fields in lines[1:]:
        check_width(where, fields, len(columns), '')
        sensor, latitude, longitude = (fields[place].strip() for place in place_of)
        pair = [to_number(latitude), to_number(longitude)]
        # Comparisons with NaN are false.
        if sensor in places or not (abs(pair[0]) <= 90 and abs(pair[1]) <= 360):
            raise ValueError(
                f'{where} must have one location in degrees per '
                f'sensor (got {sensor!r} at {latitude!r}, {longitude!r})'
            )
        places[sensor] = pair
    if absent := [name for name in names if name not in places]:
        raise ValueError(
            f"'{path}' must have a line for each sensor (got none for {absent[0]!r})"
        )
    return torch.tensor([places[name] for name in names], dtype=torch.float64)
