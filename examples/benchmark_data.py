"""The paper's data sets by name, with their graphs withheld."""

from __future__ import annotations

import os
from pathlib import Path

import torch_geometric.transforms as T
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.datasets import Coauthor, Planetoid, WikipediaNetwork

from torch_geometric_gsl.datasets import (
    MiniImageNetFeatures,
    SklearnTable,
    TwentyNewsgroups,
)
from torch_geometric_gsl.transforms import DropObservedGraph, ToSparseFeatures

ROOT = Path(__file__).resolve().parent.parent / 'data'
TABLES = ['digits', 'wine', 'breast_cancer']
# Name: (folder of the raw files, features are counts of words).
FOLDERS = {
    'CiteSeer': ('CiteSeer/raw', True),
    'PubMed': ('PubMed/raw', True),
    'Chameleon': ('chameleon/geom_gcn/raw', True),
    'Squirrel': ('squirrel/geom_gcn/raw', True),
    'CS': ('CS/raw', True),
    'Physics': ('Physics/raw', True),
    '20News': ('20News/raw', False),
    'MiniImageNet': ('MiniImageNet/raw', False),
}
DATASETS = [*TABLES, *FOLDERS]


def load(name: str) -> Data:
    """Loads features and labels; bags of words become sparse, rows sum to 1."""
    if name in TABLES:
        data: Data = SklearnTable(str(ROOT), name)[0]
        return DropObservedGraph()(data)
    folder, is_counts = FOLDERS[name]
    link_local_files(folder)
    dataset = open_dataset(name)
    data = DropObservedGraph()(dataset[0])
    if is_counts:
        data = T.NormalizeFeatures()(data)
        if float((data.x != 0).float().mean()) < 0.1:
            data = ToSparseFeatures()(data)
    return data


def open_dataset(name: str) -> InMemoryDataset:
    """Opens a data set, and downloads it where its raw files are absent."""
    if name in ('CiteSeer', 'PubMed'):
        return Planetoid(str(ROOT), name)
    if name in ('Chameleon', 'Squirrel'):
        return WikipediaNetwork(str(ROOT), name.lower())
    if name in ('CS', 'Physics'):
        return Coauthor(str(ROOT), name)
    if name == '20News':
        return TwentyNewsgroups(str(ROOT / name))
    return MiniImageNetFeatures(str(ROOT / name))


def link_local_files(folder: str) -> None:
    """Links raw files of the folder GSL_DATA, if it is set and holds them."""
    source = Path(os.environ.get('GSL_DATA', '')).resolve() / folder
    if not source.is_dir():
        source = source.parent  # Some copies lack the last folder, raw/.
    target = ROOT / folder
    if 'GSL_DATA' not in os.environ or not source.is_dir():
        return
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        link = target / path.name
        if path.is_file() and not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(path)
