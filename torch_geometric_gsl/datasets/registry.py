from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask, remove_self_loops, to_undirected

from torch_geometric_gsl._checks import (
    check_absent,
    check_flag,
    check_option,
    check_probability,
    check_seed,
    check_type,
)
from torch_geometric_gsl._warnings import silence_csr_warning
from torch_geometric_gsl.datasets._raw_files import RAW_FILES, needs, read_raw
from torch_geometric_gsl.datasets._series_folder import read_series_folder
from torch_geometric_gsl.datasets._table_file import (
    SUFFIXES,
    read_table_file,
    standardize_columns,
)

_TABLES = ('digits', 'wine', 'breast_cancer')
#: The names of the data sets that :func:`load_dataset` loads.
DATASETS: tuple[str, ...] = (*RAW_FILES, *_TABLES)
_WORDS = ('CiteSeer', 'PubMed', 'Chameleon', 'Squirrel', 'CS', 'Physics')
#: The data sets whose edges :func:`load_observed_edges` loads.
OBSERVED: tuple[str, ...] = _WORDS[:4]


def load_dataset(
    name: str | Path,
    root: str = 'data',
    *,
    label: str | None = None,
    standardize: bool | None = None,
    task: str | None = None,
    missing: Sequence[str] | None = None,
    allow_pickle: bool = False,
) -> Data:
    r"""Load the features and labels of a public dataset, or of your own file.

    Its graph, if any, is not loaded (see :func:`load_observed_edges`).

    **Public datasets.** The words of CiteSeer, PubMed, Chameleon, Squirrel, CS and
    Physics are normalized by :class:`~torch_geometric.transforms.NormalizeFeatures`,
    and stored as sparse CSR if less than a tenth is non-zero. Raw files are searched
    for in the folder of the environment variable :obj:`GSL_DATA`, then below
    :obj:`root`, both laid out as in PyTorch Geometric (:obj:`CiteSeer/raw`,
    :obj:`chameleon/geom_gcn/raw`, ...), and otherwise downloaded to :obj:`root`. Files
    with an unknown digest raise an error unless :obj:`allow_pickle` is set.

    * **20News**: posts of ten newsgroups, as TF-IDF weights of the words
      (:obj:`feature_names`) that occur in at least 5 % of them. `scikit-learn
      <https://scikit-learn.org/stable/datasets/real_world.html>`_ downloads 14 MB,
      stored as text, unless its cache file :obj:`20news-bydate_py3.pkz` exists.
    * **MiniImageNet**: features of images. Copy :obj:`mini_imagenet.pkl` from the data
      folder linked by `NodeFormer's repository
      <https://github.com/qitianwu/NodeFormer>`_ to :obj:`MiniImageNet/raw`. Its digest
      is unknown: set :obj:`allow_pickle` once, which stores its arrays below
      :obj:`root`.
    * **digits**, **wine** and **breast_cancer**: tables of scikit-learn.

    **Your own data.** Reads a path with one of these suffixes; nothing is written or
    executed, and duplicate rows are kept.

    * :obj:`.csv`: UTF-8 text with commas, and the names of the columns in the first
      line. The column :obj:`label` holds the labels, strings or numbers; all others are
      numeric features, standardized by default.
    * :obj:`.npz`: the array :obj:`x` is the feature matrix, :obj:`label`
      (:obj:`y` by default) the vector of labels, numbers or strings.
    * :obj:`.pt`: a :class:`~torch_geometric.data.Data` object written by
      :func:`torch.save`: its :obj:`x`, :obj:`y`, :obj:`class_names` (one per class, or
      per number from zero on) and the masks of its split.

    * a folder of sensor series: one :obj:`.csv` file with the names of the sensors in
      the first line and a line per step; optionally a file ending in :obj:`adj.csv`, a
      matrix of the weights of the edges that leave the sensor of a line (self-loops are
      dropped), and one ending in :obj:`locations.csv`, with the columns
      :obj:`sensor_id`, :obj:`latitude` and :obj:`longitude`. :obj:`x` has a row per
      sensor and a column per step; edges, weights, locations (:obj:`pos`) and names
      (:obj:`sensors`) are further attributes.

    Classes are numbered in order. Numeric labels, compared exactly, are regression
    targets, stored as floating-point :obj:`y`, if one of them is not whole, or more
    than half of more than 20 values occur once; :obj:`task` overrides this.

    Args:
        name (str or pathlib.Path): The name of a dataset in the table below, or the
            path of a file or folder.
        root (str, optional): The folder of downloads. (default: :obj:`"data"`)
        label (str, optional): The column or array with the labels, for a file.
            (default: :obj:`None`)
        standardize (bool, optional): If :obj:`True`, scales every feature to zero mean
            and unit variance, for a file or a table of scikit-learn; :obj:`None` does
            so for a :obj:`.csv` file and these tables. (default: :obj:`None`)
        task (str, optional): The kind of labels in a file, :obj:`"classification"` or
            :obj:`"regression"`; if :obj:`None`, it is inferred. (default: :obj:`None`)
        missing (Sequence[str], optional): The strings that mark a missing label in a
            :obj:`.csv` or :obj:`.npz` file, which raises an error; case is ignored. If
            :obj:`None`, an empty string, :obj:`?` and :obj:`nan`, and among numbers
            also :obj:`NA`, :obj:`N/A`, :obj:`None` and :obj:`null`.
            (default: :obj:`None`)
        allow_pickle (bool, optional): If :obj:`True`, reads raw files with an unknown
            digest; pickles can execute code. (default: :obj:`False`)

    Returns:
        torch_geometric.data.Data: Features :obj:`x`, labels or targets :obj:`y`, and
        :obj:`class_names` if known.

    **STATS:**

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

    Raises:
        ValueError: If :obj:`name` is unknown, :obj:`GSL_DATA` is not a folder, or your
            own file is malformed; the message names the line and the column.
        OSError: If a file cannot be opened or downloaded, or a raw file is damaged or
            unknown; the message names the file.
        ImportError: If scikit-learn or SciPy is needed and not installed.

    Example:
        >>> load_dataset('wine')
        Data(x=[178, 13], y=[178], class_names=[3])

        >>> load_dataset('flowers.csv', label='species')  # doctest: +SKIP
        Data(x=[150, 4], y=[150], class_names=[3])
    """
    for value, what in ((name, 'name'), (root, 'root')):
        check_type(value, (str, Path), what, 'a str or a Path')
    check_flag(allow_pickle, 'allow_pickle')
    name, root = str(name), str(Path(root).expanduser())
    of_files = {'label': label, 'task': task, 'missing': missing}
    others: dict[str, Any] = {'allow_pickle': allow_pickle or None}
    if name in RAW_FILES:
        others = {'standardize': standardize, **of_files}
    elif name in _TABLES:
        others |= of_files
    path = Path(name).expanduser()
    is_file = path.suffix.lower() in SUFFIXES
    is_folder = name not in DATASETS and not is_file and path.is_dir()
    if is_folder:
        others |= {'standardize': standardize, **of_files}
    for what, value in others.items():
        check_absent(value, what, f"for '{name}'")
    if is_folder:
        return read_series_folder(path)
    if name in _TABLES:
        return _load_table(name, standardize is None or standardize)
    if name in RAW_FILES:
        data = read_raw(name, raw_folder(name, root), root, allow_pickle)
        if name not in _WORDS:
            return data
        return Data(x=_normalize(cast(Tensor, data.x)), y=data.y)
    if is_file:
        return read_table_file(name, label, standardize, task, missing)
    raise ValueError(
        f"'name' must be one of {list(DATASETS)}, or the path of a folder or a file "
        f'with a suffix of {list(SUFFIXES)} (got {name!r})'
    )


def load_observed_edges(
    name: str, num_nodes: int, root: str = 'data', *, allow_pickle: bool = False
) -> Tensor:
    r"""Load the graph of a data set, without its features.

    Reads the raw files of the features, downloaded if missing.

    Args:
        name (str): :obj:`"CiteSeer"`, :obj:`"PubMed"`, :obj:`"Chameleon"` or
            :obj:`"Squirrel"`.
        num_nodes (int): The number of nodes of the data set.
        root (str, optional): As in :func:`load_dataset`. (default: :obj:`"data"`)
        allow_pickle (bool, optional): As in :func:`load_dataset`.
            (default: :obj:`False`)

    Returns:
        torch.Tensor: The edges :math:`[2, |\mathcal{E}|]` in both directions, each
        once, sorted, without loops.

    Raises:
        OSError: If a file is damaged, unknown, or cannot be downloaded.
        ValueError: If :obj:`name` is unknown, or :obj:`num_nodes` does not match.

    Example:
        >>> data = load_dataset('CiteSeer')  # doctest: +SKIP
        >>> load_observed_edges('CiteSeer', data.num_nodes).shape  # doctest: +SKIP
        torch.Size([2, 9104])
    """
    check_option(name, OBSERVED, 'name')
    data = read_raw(name, raw_folder(name, root), root, allow_pickle)
    if num_nodes != data.num_nodes:
        raise ValueError(
            f"'num_nodes' must be {data.num_nodes} for '{name}' (got {num_nodes})"
        )
    edge_index, _ = remove_self_loops(cast(Tensor, data.edge_index))
    return to_undirected(edge_index, num_nodes=num_nodes)


def raw_folder(name: str, root: str = 'data') -> Path | None:
    """Return the folder with all raw files of a dataset, or :obj:`None`.

    Searches below :obj:`GSL_DATA`, then below :obj:`root`.
    """
    check_option(name, RAW_FILES, 'name')
    raw = RAW_FILES[name]
    places = [Path(root, raw.folder)]
    if local := os.environ.get('GSL_DATA'):
        if not Path(local).is_dir():
            raise ValueError(f"'GSL_DATA' must be a folder (got {local!r})")
        # Some copies lack the last folder, raw/.
        source = Path(local, raw.folder)
        places = [source, source.parent, *places]
    for files in ([raw.plain], raw.digests) if raw.plain else (raw.digests,):
        for place in places:
            if all((place / file).is_file() for file in files):
                return place
    return None


def paper_split(
    data: Data, seed: int = 0, train: float = 0.5, val: float = 0.25
) -> Data:
    r"""Split the nodes at random into 50 % training, 25 % validation and 25 %
    test nodes, as in the `"Neural Gaussian Similarity Modeling for Differential Graph
    Structure Learning" <https://arxiv.org/abs/2312.09498>`_ paper.

    Of :math:`N` nodes, :math:`\lfloor \textrm{train} \cdot N \rfloor` are for training
    and :math:`\lfloor \textrm{val} \cdot N \rfloor` for validation; the rest are test
    nodes. The global random state is not used, and equal seeds give equal splits on
    every device.

    Args:
        data (torch_geometric.data.Data): The graph, or nodes without edges.
        seed (int, optional): The seed of the split. (default: :obj:`0`)
        train (float, optional): The share of training nodes. (default: :obj:`0.5`)
        val (float, optional): The share of validation nodes. (default: :obj:`0.25`)

    Returns:
        A shallow copy of :obj:`data` with new :obj:`train_mask`, :obj:`val_mask` and
        :obj:`test_mask`; :obj:`data` itself is untouched.

    Example:
        >>> data = paper_split(Data(x=torch.randn(10, 3)), seed=1)
        >>> [int(mask.sum()) for mask in (data.train_mask, data.val_mask,
        ...                               data.test_mask)]
        [5, 2, 3]
    """
    check_type(data, Data, 'data', 'a Data object')
    if data.num_nodes is None:
        raise ValueError("'data' must have nodes (got neither 'x' nor 'num_nodes')")
    check_seed(seed)
    for share, name in ((train, 'train'), (val, 'val')):
        check_probability(share, name)
    if train + val >= 1:
        raise ValueError(f"'train' + 'val' must be less than 1 (got {train + val})")
    num_nodes = int(data.num_nodes)
    # Round first: 0.29 * 100 = 28.999... must not lose a node.
    sizes = [int(round(share * num_nodes, 6)) for share in (train, val)]
    sizes.append(num_nodes - sum(sizes))
    if min(sizes) < 1:
        raise ValueError(
            f"'data' has too few nodes for three sets (got {num_nodes}, "
            f'which gives {sizes})'
        )
    generator = torch.Generator().manual_seed(int(seed))
    order = torch.randperm(num_nodes, generator=generator)
    values = data.to_dict().values()
    device = next((v.device for v in values if isinstance(v, Tensor)), None)
    out = copy.copy(data)
    for name, nodes in zip(('train', 'val', 'test'), order.split(sizes), strict=True):
        out[f'{name}_mask'] = index_to_mask(nodes, num_nodes).to(device)
    return out


def _load_table(name: str, standardize: bool) -> Data:
    """Load a table of scikit-learn."""
    check_flag(standardize, 'standardize')
    try:
        datasets = import_module('sklearn.datasets')
    except ImportError as error:
        raise needs(name, error) from error
    table = getattr(datasets, f'load_{name}')()
    x = standardize_columns(table.data) if standardize else table.data
    return Data(
        x=torch.from_numpy(x).float(),
        y=torch.from_numpy(table.target).long(),
        class_names=[str(label) for label in table.target_names],
    )


def _normalize(x: Tensor) -> Tensor:
    """Divide rows by their sum, if it exceeds 1, as PyG's transform does."""
    x = x.to_sparse().coalesce()
    row, value = x.indices()[0], x.values()
    total = torch.zeros(x.size(0)).index_add_(0, row, value)
    value /= total.clamp(min=1)[row]
    if value.numel() >= 0.1 * x.numel():
        return x.to_dense()
    silence_csr_warning()
    return x.to_sparse_csr()
