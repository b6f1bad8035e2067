"""Load data sets by their names, and split their nodes as in the paper."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import cast

import torch
from sklearn import datasets
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask, remove_self_loops, to_undirected

from reproduction.datasets.raw_files import RAW_FILES, read_raw
from reproduction.datasets.user_file import SUFFIXES, read_user_file

TABLES = ('digits', 'wine', 'breast_cancer')
#: The names of the data sets that :func:`load_dataset` loads.
DATASETS: tuple[str, ...] = (*RAW_FILES, *TABLES)
_WORDS = ('CiteSeer', 'PubMed', 'Chameleon', 'Squirrel', 'CS', 'Physics')
#: The data sets whose edges :func:`load_observed_edges` loads.
OBSERVED: tuple[str, ...] = _WORDS[:4]


def load_dataset(
    name: str | Path,
    root: str | Path = 'data',
    *,
    label: str | None = None,
    allow_pickle: bool = False,
) -> Data:
    """Load the features and classes of a data set, or of a file, without its graph.

    The words of CiteSeer, PubMed, Chameleon, Squirrel, CS and Physics are normalized by
    :class:`~torch_geometric.transforms.NormalizeFeatures`, and stored as sparse CSR if
    less than a tenth is non-zero. Raw files are searched for in the folder of the
    environment variable `GSL_DATA`, then below `root`, both laid out as in PyTorch
    Geometric (`CiteSeer/raw`, ...), and otherwise downloaded to `root`.

    * 20News: posts of ten newsgroups, as TF-IDF weights of the words (`feature_names`)
      that occur in at least 5 % of them. scikit-learn downloads 14 MB, stored as text,
      unless its cache file `20news-bydate_py3.pkz` exists.
    * MiniImageNet: features of images. Copy `mini_imagenet.pkl` from the data folder
      that https://github.com/qitianwu/NodeFormer links to `MiniImageNet/raw`. Its
      digest is unknown: set `allow_pickle` once, which stores its arrays.
    * digits, wine and breast_cancer: standardized tables of scikit-learn.

    =============  ======  =========  ========
    Name           #nodes  #features  #classes
    =============  ======  =========  ========
    CiteSeer        3,327      3,703         6
    PubMed         19,717        500         3
    Chameleon       2,277      2,325         5
    Squirrel        5,201      2,089         5
    CS             18,333      6,805        15
    Physics        34,493      8,415         5
    20News          9,607        236        10
    MiniImageNet   18,000        128        30
    digits          1,797         64        10
    wine              178         13         3
    breast_cancer     569         30         2
    =============  ======  =========  ========

    Args:
        name: A name above, or the path of a `.csv` or `.npz` file.
        root: The folder of downloads.
        label: The column of the classes, for a `.csv` file.
        allow_pickle: If `True`, reads raw files with an unknown digest; pickles can
            execute code.

    Raises:
        ValueError: If the name is unknown, `GSL_DATA` is not a folder, or a file of
            your own is malformed.
        OSError: If a file cannot be opened or downloaded, or a raw file is damaged.

    Example:
        >>> load_dataset('wine')
        Data(x=[178, 13], y=[178], class_names=[3])
    """
    name = str(name)
    if name in TABLES:
        table = getattr(datasets, f'load_{name}')()
        return Data(
            x=torch.from_numpy(StandardScaler().fit_transform(table.data)).float(),
            y=torch.from_numpy(table.target).long(),
            class_names=[str(label) for label in table.target_names],
        )
    if name in RAW_FILES:
        data = _read(name, root, allow_pickle)
        if name not in _WORDS:
            return data
        return Data(x=_normalize(cast(Tensor, data.x)), y=data.y)
    path = Path(name).expanduser()
    if path.suffix in SUFFIXES:
        return read_user_file(path, label)
    raise ValueError(
        f"'name' must be one of {list(DATASETS)}, or the path of a file with a suffix "
        f'of {list(SUFFIXES)} (got {name!r})'
    )


def load_observed_edges(
    name: str, root: str | Path = 'data', *, allow_pickle: bool = False
) -> Tensor:
    """Load the graph of CiteSeer, PubMed, Chameleon or Squirrel.

    Returns:
        torch.Tensor: The edges in both directions, each once, sorted, without loops.

    Raises:
        OSError: If a file is damaged, unknown, or cannot be downloaded.
        ValueError: If the name is not one of these.
    """
    if name not in OBSERVED:
        raise ValueError(f"'name' must be one of {list(OBSERVED)} (got {name!r})")
    data = _read(name, root, allow_pickle)
    edge_index, _ = remove_self_loops(cast(Tensor, data.edge_index))
    return to_undirected(edge_index, num_nodes=data.num_nodes)


def _read(name: str, root: str | Path, allow_pickle: bool) -> Data:
    root = str(Path(root).expanduser())
    return read_raw(name, raw_folder(name, root), root, allow_pickle)


def raw_folder(name: str, root: str | Path = 'data') -> Path | None:
    """Return the folder with all raw files of a data set, or `None`.

    Searches below `GSL_DATA`, then below `root`.
    """
    raw = RAW_FILES[name]
    folders = [Path(root, raw.folder)]
    if local := os.environ.get('GSL_DATA'):
        if not Path(local).is_dir():
            raise ValueError(f"'GSL_DATA' must be a folder (got {local!r})")
        # Some copies lack the last folder, raw/.
        source = Path(local, raw.folder)
        folders = [source, source.parent, *folders]
    for files in ([raw.plain], raw.digests) if raw.plain else (raw.digests,):
        for folder in folders:
            if all((folder / file).is_file() for file in files):
                return folder
    return None


def paper_split(
    data: Data, seed: int = 0, train: float = 0.5, val: float = 0.25
) -> Data:
    """Split the nodes at random, half for training and a fourth for validation.

    Returns:
        torch_geometric.data.Data: A shallow copy with `train_mask`, `val_mask` and
        `test_mask`, the same for equal seeds on every device.

    Raises:
        ValueError: If a set has no nodes.

    Example:
        >>> data = paper_split(Data(x=torch.randn(10, 3)), seed=1)
        >>> [int(mask.sum()) for mask in (data.train_mask, data.val_mask,
        ...                               data.test_mask)]
        [5, 2, 3]
    """
    num_nodes = int(data.num_nodes or 0)
    # Round first: 0.29 * 100 = 28.999... must not lose a node.
    sizes = [int(round(share * num_nodes, 6)) for share in (train, val)]
    sizes.append(num_nodes - sum(sizes))
    if min(sizes) < 1:
        raise ValueError(
            f"'data' has too few nodes for three sets (got {num_nodes}, "
            f'which gives {sizes})'
        )
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(num_nodes, generator=generator)
    values = data.to_dict().values()
    device = next((v.device for v in values if isinstance(v, Tensor)), None)
    out = copy.copy(data)
    for name, nodes in zip(('train', 'val', 'test'), order.split(sizes), strict=True):
        out[f'{name}_mask'] = index_to_mask(nodes, num_nodes).to(device)
    return out


def _normalize(x: Tensor) -> Tensor:
    """Divide rows by their sum, if it exceeds 1, as PyG's transform does."""
    x = x.to_sparse().coalesce()
    row, value = x.indices()[0], x.values()
    total = torch.zeros(x.size(0)).index_add_(0, row, value)
    value /= total.clamp(min=1)[row]
    if value.numel() >= 0.1 * x.numel():
        return x.to_dense()
    return x.to_sparse_csr()
