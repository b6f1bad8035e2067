"""Compare graphs of nearest neighbours with their definition and with PyG's operators.

    python benchmark/clouds.py
    python benchmark/clouds.py --clouds 0 --sizes 1024
    python benchmark/clouds.py --threads 2 --repeats 9 --out clouds.json

First, `knn_graph` and `radius_graph` run on random clouds: points anywhere or on a
grid, with ties and duplicates, one cloud or several, with or without self-loops, with
or without a largest number of neighbours; every second one is searched by a tree, as
large clouds are. The edges and their order must equal the definition in double
precision. On clouds without ties, `knn_graph`, `radius_graph`, `KNNGraph` and
`DynamicEdgeConv` of PyG are compared as well, where these work: they need pyg-lib, or
torch-cluster with PyG below 2.8. They may order edges and break ties differently.

Then the search for the 20 nearest neighbours of points in a cube is timed, with the
trees of scipy and scikit-learn, faiss's flat index and torch-cluster, if installed, and
our search without a tree, interleaved in one process; times are medians over rounds.
The exit status is 1 if an edge differs in the first two parts.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from record import at_least, environment, line, positive, write_json
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import DynamicEdgeConv, pool
from torch_geometric.transforms import KNNGraph
from tqdm import tqdm

from torch_geometric_gsl import KNNEdgeConv, knn_graph, radius_graph
from torch_geometric_gsl.ops import points
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET

K = 20
HEADER = 'points', 'method', 'seconds', 'times as fast', 'edges that differ'


def draw_cloud(random: np.random.Generator, can_tie: bool = True) -> dict[str, Any]:
    """Draw points, their cloud ids, and whether the graph has self-loops."""
    size = int(random.integers(1, 40)), int(random.integers(1, 4))
    on_grid = can_tie and random.random() < 0.5
    x = random.integers(0, 4, size) if on_grid else random.normal(size=size)
    batch = np.sort(random.integers(0, 3, len(x))) if random.random() < 0.5 else None
    points = torch.from_numpy(x)
    return {
        'x': points.float() if can_tie else points.double(),
        'batch': None if batch is None else torch.from_numpy(batch),
        'loop': bool(random.random() < 0.5),
    }


def definition(
    x: Tensor,
    batch: Tensor | None,
    loop: bool,
    max_neighbours: int | None,
    square: float = np.inf,
) -> Tensor:
    """Compute the edges by sorting all candidates by distance, then by index."""
    points = x.double().numpy()
    ids = np.zeros(len(x)) if batch is None else batch.numpy()
    edges: list[tuple[int, int]] = []
    for i, row in enumerate(points):
        distance = np.square(points - row).sum(axis=1)
        is_near = (ids == ids[i]) & (loop or np.arange(len(x)) != i)
        near = np.flatnonzero(is_near & (distance <= square))
        order = np.lexsort([near, distance[near]])[:max_neighbours]
        edges += [(int(j), i) for j in near[order]]
    return torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T


def count_errors(num_clouds: int) -> dict[str, int]:
    """Count the random clouds whose graph differs from the definition."""
    random, wrong = np.random.default_rng(0), {'knn_graph': 0, 'radius_graph': 0}
    for i in tqdm(range(num_clouds), desc='clouds', disable=None):
        drawn, k = draw_cloud(random), int(random.integers(1, 12))
        # Some distances of points on a grid equal these radii.
        radius = float(random.choice([0.5, 1.0, 2.0]))
        max_neighbours = k if random.random() < 0.5 else None
        # A tree searches clouds that exceed a block.
        budget = 1 if i % 2 else MEMORY_BUDGET
        graph = knn_graph(k=k, **drawn, memory_budget=budget)
        inside = radius_graph(
            r=radius, max_num_neighbors=max_neighbours, **drawn, memory_budget=budget
        )
        expected = definition(**drawn, max_neighbours=max_neighbours, square=radius**2)
        wrong['knn_graph'] += not torch.equal(
            graph, definition(**drawn, max_neighbours=k)
        )
        wrong['radius_graph'] += not torch.equal(inside, expected)
    return wrong


def compare_with_pyg(num_clouds: int) -> dict[str, int] | None:
    """Count the clouds without ties on which PyG's operators differ, if they work."""
    random, wrong = np.random.default_rng(1), dict.fromkeys(OPERATORS, 0)
    if not has_pyg_operators():
        return None
    for _ in tqdm(range(num_clouds), desc="PyG's operators", disable=None):
        drawn, k = draw_cloud(random, can_tie=False), int(random.integers(1, 12))
        for name, operator in OPERATORS.items():
            wrong[name] += not operator(k, **drawn)
    return wrong


def has_pyg_operators() -> bool:
    """Return whether PyG can search nearest neighbours here."""
    try:
        pool.knn_graph(torch.zeros(2, 1), 1)
    except ImportError:
        return False
    return True


def _as_sets(edges: Tensor) -> Tensor:
    """Sort edges by target, then by source."""
    order = np.lexsort(edges.numpy())
    return edges[:, torch.from_numpy(order)]


def _knn_agrees(k: int, x: Tensor, batch: Tensor | None, loop: bool) -> bool:
    theirs = pool.knn_graph(x, k, batch, loop)
    return torch.equal(_as_sets(theirs), _as_sets(knn_graph(x, k, batch, loop)))


def _radius_agrees(k: int, x: Tensor, batch: Tensor | None, loop: bool) -> bool:
    theirs = pool.radius_graph(x, 1.0, batch, loop, max_num_neighbors=len(x) + 1)
    return torch.equal(_as_sets(theirs), _as_sets(radius_graph(x, 1.0, batch, loop)))


def _transform_agrees(k: int, x: Tensor, batch: Tensor | None, loop: bool) -> bool:
    data = KNNGraph(k, loop)(Data(pos=x, batch=batch, num_nodes=len(x)))
    ours = knn_graph(x, k, batch, loop)
    return torch.equal(_as_sets(data.edge_index), _as_sets(ours))


def _layer_agrees(k: int, x: Tensor, batch: Tensor | None, loop: bool) -> bool:
    mlp = torch.nn.Linear(2 * x.size(1), 4).double()
    # Both layers share `mlp`, and each resets its weights.
    theirs = DynamicEdgeConv(mlp, k)  # type: ignore[abstract]
    ours = KNNEdgeConv(mlp, k)  # type: ignore[abstract]
    return torch.allclose(theirs(x, batch), ours(x, batch))


OPERATORS: dict[str, Callable[..., bool]] = {
    'knn_graph': _knn_agrees,
    'radius_graph': _radius_agrees,
    'KNNGraph': _transform_agrees,
    'DynamicEdgeConv': _layer_agrees,
}


def _scipy(x: Tensor, threads: int) -> Tensor:
    from scipy.spatial import KDTree

    neighbours = KDTree(x.numpy()).query(x.numpy(), K + 1, workers=threads)[1]
    return torch.from_numpy(neighbours[:, 1:])


def _sklearn(x: Tensor, threads: int) -> Tensor:
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=K, n_jobs=threads).fit(x.numpy())
    return torch.from_numpy(search.kneighbors(return_distance=False))


def _faiss(x: Tensor, threads: int) -> Tensor:
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatL2(x.size(1))
    index.add(x.numpy())
    return torch.from_numpy(index.search(x.numpy(), K + 1)[1][:, 1:])


def _torch_cluster(x: Tensor, threads: int) -> Tensor:
    import torch_cluster

    edges: Tensor = torch_cluster.knn_graph(x, K, num_workers=threads)[0]
    return edges.view(-1, K)


def _ours(x: Tensor, threads: int) -> Tensor:
    return knn_graph(x, K)[0].view(-1, K)


def _without_tree(x: Tensor, threads: int) -> Tensor:
    with mock.patch.object(points, '_TREE_COLUMNS', 0):
        return _ours(x, threads)


METHODS: dict[str, Callable[[Tensor, int], Tensor]] = {
    'knn_graph': _ours,
    'knn_graph without tree': _without_tree,
    'scipy': _scipy,
    'sklearn': _sklearn,
    'faiss': _faiss,
    'torch_cluster': _torch_cluster,
}


def measure(
    size: int, repeats: int, threads: int, has_tails: bool = False
) -> list[dict[str, Any]]:
    """Time the searches of one cloud, interleaved round by round."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(size, 3, generator=generator)
    if has_tails:
        x = torch.randn(size, 3, generator=generator)
        x = x * torch.randn(size, 1, generator=generator).exp()
    methods = {
        name: method
        for name, method in METHODS.items()
        if name.startswith('knn_graph') or importlib.util.find_spec(name) is not None
    }
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    neighbours = {}
    for _ in range(repeats):
        for name, method in methods.items():
            begin = time.perf_counter()
            neighbours[name] = method(x, threads)
            seconds[name].append(time.perf_counter() - begin)
    expected = neighbours['knn_graph']
    reference = statistics.median(seconds['knn_graph'])
    return [
        {
            'points': size,
            'method': name,
            'seconds': statistics.median(seconds[name]),
            'ratio': reference / statistics.median(seconds[name]),
            'differ': int((neighbours[name] != expected).sum()),
        }
        for name in methods
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--clouds', type=int, default=10_000)
    parser.add_argument(
        '--sizes', type=at_least(K + 1), nargs='*', default=[1024, 100_000]
    )
    parser.add_argument('--repeats', type=positive, default=5)
    parser.add_argument('--threads', type=positive, default=1)
    parser.add_argument(
        '--tails', action='store_true', help='normal points times log-normal factors'
    )
    parser.add_argument('--out', type=Path)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    wrong = count_errors(args.clouds)
    for name, count in wrong.items():
        print(f'{name}: {count} of {args.clouds} clouds differ from the definition')
    pyg_errors = compare_with_pyg(args.clouds)
    if pyg_errors is None:
        print("PyG's own operators do not work here")
    for name, count in (pyg_errors or {}).items():
        print(f"PyG's {name}: {count} of {args.clouds} clouds without ties differ")
    options = args.repeats, args.threads, args.tails
    rows = [row for size in args.sizes for row in measure(size, *options)]
    print(line(HEADER))
    for row in rows:
        numbers = f'{row["seconds"]:.4g}', f'{row["ratio"]:.3g}', str(row['differ'])
        print(line([str(row['points']), row['method'], *numbers]))
    if args.out is not None:
        about = {'environment': environment(), 'clouds': args.clouds, 'wrong': wrong}
        about['pyg'] = pyg_errors
        write_json(args.out, about | {'rows': rows})
    return int(any(wrong.values()) or any((pyg_errors or {}).values()))


if __name__ == '__main__':
    sys.exit(main())
