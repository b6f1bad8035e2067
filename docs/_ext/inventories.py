"""Write the inventories of other documentation: their names that these pages refer to.

Sphinx links to other projects by inventories, which it would download. These hold only
what is used here, so that the pages are built without a network. A name that is not
listed stays without a link.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import NamedTuple


class Project(NamedTuple):
    """A documentation, and the pages of its names."""

    url: str
    #: The page of each kind of names, with the name in braces; then the names.
    pages: dict[tuple[str, str], list[str]]
    #: Where a class is defined, which is the name that annotations have.
    aliases: dict[str, str]


OWN_PAGE = 'generated/{}.html'
PROJECTS = {
    'python': Project(
        'https://docs.python.org/3/',
        {
            ('class', 'library/collections.abc.html'): [
                'collections.abc.Callable',
                'collections.abc.Iterator',
                'collections.abc.Sequence',
            ],
            ('class', 'library/pathlib.html'): ['pathlib.Path'],
        },
        {},
    ),
    'torch': Project(
        'https://docs.pytorch.org/docs/stable/',
        {
            ('class', 'tensors.html'): ['torch.Tensor'],
            ('class', 'tensor_attributes.html'): ['torch.device', 'torch.dtype'],
            ('class', 'autograd.html'): ['torch.autograd.Function'],
            ('class', OWN_PAGE): ['torch.Generator', 'torch.nn.Module'],
            ('method', OWN_PAGE): ['torch.Tensor.backward'],
            ('function', OWN_PAGE): [
                'torch.autograd.grad',
                'torch.compile',
                'torch.nn.functional.normalize',
                'torch.save',
            ],
        },
        {
            'Tensor': 'torch.Tensor',
            'torch._C.Generator': 'torch.Generator',
            'torch.nn.modules.module.Module': 'torch.nn.Module',
        },
    ),
    'torch_geometric': Project(
        'https://pytorch-geometric.readthedocs.io/en/latest/',
        {
            ('class', OWN_PAGE): [
                'torch_geometric.data.Data',
                'torch_geometric.data.InMemoryDataset',
                'torch_geometric.datasets.Planetoid',
                'torch_geometric.nn.conv.GCNConv',
                'torch_geometric.nn.conv.SAGEConv',
                'torch_geometric.nn.models.LINKX',
                'torch_geometric.nn.models.MLP',
                'torch_geometric.transforms.BaseTransform',
                'torch_geometric.transforms.Compose',
                'torch_geometric.transforms.NormalizeFeatures',
            ],
            ('function', 'modules/utils.html'): ['torch_geometric.utils.homophily'],
            ('method', 'generated/torch_geometric.data.Batch.html'): [
                'torch_geometric.data.Batch.to_data_list'
            ],
        },
        {
            'torch_geometric.data.data.Data': 'torch_geometric.data.Data',
            'torch_geometric.data.in_memory_dataset.InMemoryDataset': (
                'torch_geometric.data.InMemoryDataset'
            ),
            'torch_geometric.transforms.base_transform.BaseTransform': (
                'torch_geometric.transforms.BaseTransform'
            ),
        },
    ),
}


def write_inventories(folder: Path) -> dict[str, tuple[str, str]]:
    """Write all inventories, and return the setting ``intersphinx_mapping``."""
    folder.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for name, project in PROJECTS.items():
        path = folder / f'{name}.inv'
        path.write_bytes(inventory(name, project))
        mapping[name] = (project.url, str(path))
    return mapping


def inventory(name: str, project: Project) -> bytes:
    """Return an inventory in the second version of Sphinx's format."""
    places = {
        known: (kind, f'{page.format(known)}#{known}')
        for (kind, page), names in project.pages.items()
        for known in names
    }
    places |= {alias: places[known] for alias, known in project.aliases.items()}
    lines = [f'{n} py:{kind} 1 {at} -\n' for n, (kind, at) in sorted(places.items())]
    head = f'# Sphinx inventory version 2\n# Project: {name}\n# Version: stable\n'
    text = ''.join(lines).encode()
    return f'{head}# The rest is compressed using zlib.\n'.encode() + zlib.compress(
        text
    )
