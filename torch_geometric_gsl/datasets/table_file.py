from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_geometric_gsl._checks import check_absent, check_flag
from torch_geometric_gsl.datasets._io.csv_file import read_csv
from torch_geometric_gsl.datasets._io.data_file import read_data
from torch_geometric_gsl.datasets._io.npz_file import read_npz
from torch_geometric_gsl.datasets._standardize import standardize_columns

#: The kinds of files that :func:`read_table_file` reads.
SUFFIXES: tuple[str, ...] = ('.csv', '.npz', '.pt')


def read_table_file(
    path: str | Path, label: str | None = None, standardize: bool | None = None
) -> Data:
    """Read features and labels from a file, as
    :func:`~torch_geometric_gsl.datasets.load_dataset` describes.

    Args:
        path (str or pathlib.Path): The file, of a kind in :obj:`SUFFIXES`.
        label (str, optional): The column (:obj:`.csv`) or array (:obj:`.npz`) of the
            labels. (default: :obj:`None`)
        standardize (bool, optional): Whether to scale every feature to zero mean and
            unit variance; if :obj:`None`, only those of a :obj:`.csv` file.
            (default: :obj:`None`)

    Returns:
        torch_geometric.data.Data: Features :obj:`x`, labels :obj:`y`,
        :obj:`class_names`, and the masks of a split if the file has them.

    Raises:
        ValueError: If the file is not what it must be; the text tells where.
        OSError: If the file cannot be opened.
    """
    path = Path(path).expanduser()
    suffix = path.suffix.lower()
    if standardize is None:
        standardize = suffix == '.csv'
    check_flag(standardize, 'standardize')
    columns: list[str] = []
    if suffix == '.csv':
        data, columns = read_csv(path, label)
    elif suffix == '.npz':
        data = read_npz(path, label)
    else:
        check_absent(label, 'label', "for a '.pt' file, whose labels are its 'y'")
        data = read_data(path)
    x = cast(Tensor, data.x)
    if standardize:
        if x.layout != torch.strided:
            raise ValueError(
                f"'standardize' must be False for '{path}', whose features are sparse: "
                'they would be dense (got True)'
            )
        x = torch.from_numpy(standardize_columns(x.double().numpy()))
    data.x = x.float()
    _check_finite(data.x, path, columns)
    return data


def _check_finite(x: Tensor, path: Path, columns: list[str]) -> None:
    is_dense = x.layout == torch.strided
    bad = ~(x if is_dense else x.values()).isfinite()
    if not bad.any():
        return
    place = int(bad.nonzero()[0, 1] if is_dense else x.col_indices()[bad][0])
    column = repr(columns[place]) if columns else place
    raise ValueError(
        f"'{path}' must have finite features (got {int(bad.sum())} that are not, or "
        f'are too large for float32, the first in column {column})'
    )
