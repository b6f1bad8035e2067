"""What a new process alone can tell: of imports, of warnings, of what may be absent."""

import pkgutil

from oracles import run_alone

import torch_geometric_gsl as gsl

SCRIPT = """
import sys
from typing import Any

OPTIONAL = {
    *('torch_sparse', 'torch_scatter', 'sklearn', 'matplotlib', 'yacs', 'lightning'),
    'pytorch_lightning',
}
wanted = []

class Blind:
    def __init__(self, finder: Any) -> None:
        self.finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)

    def find_spec(self, name: str, *args: Any) -> Any:
        if name.split('.')[0] in OPTIONAL:
            wanted.append(name)
            return None
        return self.finder.find_spec(name, *args)

sys.meta_path[:] = map(Blind, sys.meta_path)

import torch_geometric
import torch_geometric.datasets
import torch_geometric.loader
import torch_geometric.nn
import torch_geometric.nn.model_hub
import torch_geometric.transforms

wanted.clear()  # What PyTorch Geometric looks for is its own affair.

import importlib
import pkgutil
import torch
import torch_geometric_gsl

print('packages', sorted({*PACKAGES} - {*dir(torch_geometric_gsl)}))

# PyTorch warns of these once per process.
import warnings
import torch_geometric_gsl.transforms as T
with warnings.catch_warnings():
    warnings.simplefilter('error')
    x = torch.randn(200, 4)
    T.SimilarityKNNGraph(3)(torch_geometric.data.Data(x=x))
    similarity = torch_geometric_gsl.GaussianSimilarity(4)
    torch_geometric_gsl.GumbelKNNSampler(similarity, method='race')(x)

# Which say by themselves what they lack.
NEEDY = ('torch_geometric_gsl.sklearn',)
sys.modules |= dict.fromkeys(NEEDY)
for info in pkgutil.walk_packages(
    torch_geometric_gsl.__path__, 'torch_geometric_gsl.'
):
    if sys.modules.get(info.name, info) is None:
        continue
    importlib.import_module(info.name)
print('wanted', wanted)

x, y = torch.randn(12, 6), torch.arange(12) % 2
for kind in ({}, {'num_transition_nodes': 5, 'num_nodes': 12}):
    model = torch_geometric_gsl.GSLNet(6, 8, 2, 2, **kind)
    optimizer = torch.optim.Adam(model.parameters())
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    print('trained', bool(model.eval()(x).isfinite().all()))

sampler = torch_geometric_gsl.GumbelKNNSampler.paper(
    torch_geometric_gsl.LinearSimilarity(6)
)
layer = torch_geometric.nn.GCNConv(6, 3, add_self_loops=False)
print('layer', layer(x, *sampler(x)).shape)
try:
    sampler(x, return_adj_t=True)
except ImportError as error:
    print('refused', error)
for name in NEEDY:
    del sys.modules[name]
    try:
        importlib.import_module(name)
    except ImportError as error:
        print('refused', error)
"""


def test_works_without_optional_libraries():
    # Packages whose names say that they are public, but for the estimators, which need
    # scikit-learn, are there after the import alone.
    path = gsl.__path__
    packages = {info.name for info in pkgutil.iter_modules(path) if info.ispkg}
    names = sorted(packages - {'sklearn'})
    assert {'transforms', 'visualization'} < set(names)
    printed, _ = run_alone('-c', f'PACKAGES = {names}\n{SCRIPT}')
    assert printed.splitlines() == [
        'packages []',
        'wanted []',
        'trained True',
        'trained True',
        'layer torch.Size([12, 3])',
        "refused 'adj_t' needs torch-sparse: "
        'pip install --no-build-isolation torch-scatter torch-sparse',
        "refused 'torch_geometric_gsl.sklearn' needs scikit-learn: "
        'pip install scikit-learn',
    ]
