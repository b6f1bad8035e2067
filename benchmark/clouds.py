"""Compare `knn_graph` with its definition, and its time with that of other libraries.

    python benchmark/clouds.py
    python benchmark/clouds.py --clouds 0 --sizes 1024
    python benchmark/clouds.py --threads 2 --repeats 9 --out clouds.json

First random clouds are joined: points anywhere or on a grid, with ties and duplicates,
one cloud or several, with loops or without. Each edge must be that of the definition in
double precision, in its order. Then the time of the 20 nearest of points in a cube is
measured beside scipy's tree, scikit-learn's, faiss's flat index and torch-cluster, as
far as they are installed, interleaved in one process; the median is of some rounds.
The exit status is 1 if an edge differs.
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

import numpy as np
import torch
from record import environment, positive, write_json
from report import line
from torch import Tensor
from tqdm import tqdm

from torch_geometric_gsl import knn_graph

K = 20
HEADER = 'points', 'method', 'seconds', 'times as fast', 'edges that differ'


def draw_cloud(random: np.random.Generator) -> dict[str, Any]:
    """Draw the arguments of a search."""
    size = int(random.integers(1, 40)), int(random.integers(1, 4))
    on_grid = random.random() < 0.5
    x = random.integers(0, 4, size) if on_grid else random.normal(size=size)
    batch = np.sort(random.integers(0, 3, len(x))) if random.random() < 0.5 else None
    return {
        'x': torch.from_numpy(x).float(),
        'k': int(random.integers(1, 12)),
        'batch': None if batch is None else torch.from_numpy(batch),
        'loop': bool(random.random() < 0.5),
    }


def definition(x: Tensor, k: int, batch: Tensor | None, loop: bool) -> Tensor:
    """Sort all candidates of each point by their distance, then by their number."""
    points = x.double().numpy()
    ids = np.zeros(len(x)) if batch is None else batch.numpy()
    edges: list[tuple[int, int]] = []
    for i, row in enumerate(points):
        distance = np.square(points - row).sum(axis=1)
        is_near = (ids == ids[i]) & (loop or np.arange(len(x)) != i)
        near = np.flatnonzero(is_near)
        order = np.lexsort([near, distance[near]])[:k]
        edges += [(int(j), i) for j in near[order]]
    return torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T


def count_errors(number: int) -> int:
    """Return how many random clouds are not joined as the definition says."""
    random, wrong = np.random.default_rng(0), 0
    for _ in tqdm(range(number), desc='clouds', disable=None):
        drawn = draw_cloud(random)
        wrong += not torch.equal(knn_graph(**drawn), definition(**drawn))
    return wrong


def _scipy(x: Tensor, threads: int) -> Tensor:
    from scipy.spatial import KDTree

    found = KDTree(x.numpy()).query(x.numpy(), K + 1, workers=threads)[1]
    return torch.from_numpy(found[:, 1:])


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

    found: Tensor = torch_cluster.knn_graph(x, K, num_workers=threads)[0]
    return found.view(-1, K)


def _ours(x: Tensor, threads: int) -> Tensor:
    return knn_graph(x, K)[0].view(-1, K)


METHODS: dict[str, Callable[[Tensor, int], Tensor]] = {
    'knn_graph': _ours,
    'scipy': _scipy,
    'sklearn': _sklearn,
    'faiss': _faiss,
    'torch_cluster': _torch_cluster,
}


def measure(size: int, repeats: int, threads: int) -> list[dict[str, Any]]:
    """Time the searches of one cloud, interleaved round by round."""
    x = torch.rand(size, 3, generator=torch.Generator().manual_seed(0))
    methods = {
        name: method
        for name, method in METHODS.items()
        if name == 'knn_graph' or importlib.util.find_spec(name) is not None
    }
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    found = {}
    for _ in range(repeats):
        for name, method in methods.items():
            begin = time.perf_counter()
            found[name] = method(x, threads)
            seconds[name].append(time.perf_counter() - begin)
    wanted = found['knn_graph']
    first = statistics.median(seconds['knn_graph'])
    return [
        {
            'points': size,
            'method': name,
            'seconds': statistics.median(seconds[name]),
            'ratio': first / statistics.median(seconds[name]),
            'differ': int((found[name] != wanted).sum()),
        }
        for name in methods
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--clouds', type=int, default=10_000)
    parser.add_argument('--sizes', type=positive, nargs='*', default=[1024, 100_000])
    parser.add_argument('--repeats', type=positive, default=5)
    parser.add_argument('--threads', type=positive, default=1)
    parser.add_argument('--out', type=Path)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    wrong = count_errors(args.clouds)
    print(f'{wrong} of {args.clouds} clouds differ from the definition')
    rows = [row for n in args.sizes for row in measure(n, args.repeats, args.threads)]
    print(line(HEADER))
    for row in rows:
        numbers = f'{row["seconds"]:.4g}', f'{row["ratio"]:.3g}', str(row['differ'])
        print(line([str(row['points']), row['method'], *numbers]))
    if args.out is not None:
        about = {'environment': environment(), 'wrong': wrong, 'clouds': args.clouds}
        write_json(args.out, about | {'rows': rows})
    return int(wrong > 0)


if __name__ == '__main__':
    sys.exit(main())
