"""Time searches of the k heaviest sources of a learned metric, beside other libraries.

    python benchmark/heaviest.py
    python benchmark/heaviest.py --workloads table clustered --rows 1000000 --k 96
    python benchmark/heaviest.py --csv benchmark/results/heaviest*.json

Evaluation keeps the `eval_k` heaviest sources of each target: of negative squared
distances the nearest rows, each its own first. A `table` workload has the keys (96
channels) of a `TableNet` that was trained for `--steps` steps on pools of 1,024 rows of
`tables.py`; `clustered` has the rows of 32 channels of `workloads.py`.

Ours is `best_sources` in double precision, as evaluation runs it. Beside it stand
blocks of matrix products with `topk`, faiss' flat index, its inverted lists with the
fewest probes that reach a recall of 0.99, and pynndescent, where they are installed.
Recall is the share of what was found that is as near as the k-th nearest row in double
precision, of 256 targets. It must be 1 for ours before anything is timed, and 0.999 for
what is exact but for single precision; else the exit status is 1.

Methods are interleaved in one process. Those that compare all pairs are timed on
`--targets` rows and extrapolated, which is marked with a tilde; the others search all.
With `--repeats 1` the searches whose recall was checked are those that are timed.
`--csv` prints the table of files that were written before.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from measure import interleave, seconds_of
from record import at_least, environment, format_number, line, positive, write_json
from torch import Tensor
from workloads import load_embeddings, make_table

from torch_geometric_gsl import TableNet
from torch_geometric_gsl.ops.pair_scores import PairScores, distances_as_dots
from torch_geometric_gsl.ops.scores import Negative
from torch_geometric_gsl.ops.search import best_sources

HERE = Path(__file__).resolve().parent
WORKLOADS = 'table', 'clustered'
HIDDEN, POOL, CHECKED = 192, 1024, 256
LEAST_RECALL, PROBES = 0.99, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
EXACT = {'best_sources': 1.0, 'blocks': 0.999, 'faiss flat': 0.999}
HEADER = 'workload', 'rows', 'k', 'method', 'seconds', 'times ours', 'recall'


class Method(NamedTuple):
    """A search of the rows with these numbers among all rows, and what it compares."""

    search: Callable[[Tensor], Tensor]
    is_quadratic: bool = False
    detail: str = ''


def load(name: str, num_rows: int, steps: int, seed: int) -> Tensor:
    """Return the rows of a workload."""
    if name == 'clustered':
        return load_embeddings(f'clustered-{num_rows}', seed)[0]
    torch.manual_seed(seed)
    x, y = (torch.from_numpy(column).float() for column in make_table(num_rows, seed))
    # The place is uniform in a square; the other columns have unit variance.
    x[:, :2] = (x[:, :2] - 0.5) * 12**0.5
    net = TableNet(x.size(1), HIDDEN, 1, draws=4)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    for _ in range(steps):
        pool = torch.randint(num_rows, (POOL,))
        optimizer.zero_grad()
        F.mse_loss(net(x[pool], y[pool]).squeeze(1), y[pool]).backward()
        optimizer.step()
    key = net.eval().index(x).index_key
    if key is None:
        raise ValueError("'graph' of the net must be 'learned' (got no keys)")
    return key.clone()


def scores(dst: Tensor, src: Tensor) -> PairScores:
    return PairScores(dst, src, Negative(), 'squared_distance')


def methods(z: Tensor, k: int, threads: int) -> dict[str, Method]:
    """Return the searches; those that are approximate build their index in each."""
    double, dots = z.double(), distances_as_dots(scores(z, z))
    size = z.size(0)

    def ours(rows: Tensor) -> Tensor:
        dst = double if rows.numel() == size else double[rows]
        return best_sources(scores(dst, double), k)

    searches = {
        'best_sources': Method(ours),
        'blocks': Method(lambda rows: dots.take(rows).best(k)[1], True),
    }
    if importlib.util.find_spec('faiss') is not None:
        import faiss

        faiss.omp_set_num_threads(threads)
        # Once: what is extrapolated is the search alone.
        index = faiss.IndexFlatL2(z.size(1))
        index.add(z.numpy())
        searches['faiss flat'] = Method(partial(_flat, z, k, index), True)
        searches['faiss lists'] = Method(partial(_lists, z, k, PROBES[0]))
    if importlib.util.find_spec('pynndescent') is not None:
        _pynndescent(z[:1000], k, threads, torch.arange(1))  # Compiles.
        searches['pynndescent'] = Method(partial(_pynndescent, z, k, threads))
    return searches


def _flat(z: Tensor, k: int, index: Any, rows: Tensor) -> Tensor:
    return torch.from_numpy(index.search(z[rows].numpy(), k)[1])


def _lists(z: Tensor, k: int, probes: int, rows: Tensor) -> Tensor:
    index = _fill_lists(z)
    index.nprobe = probes
    return _flat(z, k, index, rows)


def _fill_lists(z: Tensor) -> Any:
    """Return inverted lists of all rows."""
    import faiss

    count = 1 << round(4 * z.size(0) ** 0.5).bit_length() - 1
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(z.size(1)), z.size(1), count)
    index.train(z[:: max(1, z.size(0) // (64 * count))].numpy())
    index.add(z.numpy())
    return index


def _pynndescent(z: Tensor, k: int, threads: int, rows: Tensor) -> Tensor:
    from pynndescent import NNDescent

    index = NNDescent(z.numpy(), n_neighbors=k, n_jobs=threads, random_state=0)
    return torch.from_numpy(index.neighbor_graph[0]).long()[rows]


class Truth:
    """The distance of the k-th nearest row of some targets, in double precision."""

    def __init__(self, z: Tensor, rows: Tensor, k: int) -> None:
        self.z, self.rows, self.k = z, rows, k
        direct = 'donot_use_mm_for_euclid_dist'
        self.radius = torch.cat(
            [
                torch.cdist(block, z.double(), compute_mode=direct).kthvalue(k).values
                for block in z[rows].double().split(16)
            ]
        )

    def recall(self, searches: Tensor) -> float:
        """Return the share of the sources that are as near."""
        hits = 0
        for row, radius, listed in zip(self.rows, self.radius, searches, strict=True):
            sources = self.z[listed[listed >= 0].unique()].double()
            distance = (sources - self.z[row].double()).norm(dim=1)
            hits += int((distance <= radius * (1 + 1e-9)).sum())
        return hits / searches.numel()


def check(
    z: Tensor, k: int, searches: dict[str, Method]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return recalls, and seconds of searches of all rows; set the probes of faiss."""
    rows = torch.arange(0, z.size(0), max(1, z.size(0) // CHECKED))[:CHECKED]
    every, truth = torch.arange(z.size(0)), Truth(z, rows, k)
    recalls: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for name, method in searches.items():
        if name == 'faiss lists':
            index = _fill_lists(z)
            for probes in PROBES:
                search = partial(_lists, z, k, probes)
                searches[name] = Method(search, detail=f', {probes} probes')
                index.nprobe = probes
                recalls[name] = truth.recall(_flat(z, k, index, rows))
                if recalls[name] >= LEAST_RECALL:
                    break
            continue
        listed: list[Tensor] = []
        # Bounds and graphs are those of a search of all rows.
        sample = rows if method.is_quadratic else every
        taken = seconds_of(lambda: listed.append(method.search(sample)))  # noqa: B023
        if sample is every:
            seconds[name], listed[0] = taken, listed[0][rows]
        recalls[name] = truth.recall(listed[0])
    return recalls, seconds


def measure(z: Tensor, k: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Check the searches of some rows, then time them."""
    searches = methods(z, k, args.threads)
    searches = {name: searches[name] for name in searches if name not in args.without}
    recalls, once = check(z, k, searches)
    size = z.size(0)
    sample = torch.randperm(size, generator=torch.Generator().manual_seed(1))
    sample, every = sample[: args.targets], torch.arange(size)
    steps: dict[str, Callable[[], None]] = {
        name: partial(_run, method.search, sample if method.is_quadratic else every)
        for name, method in searches.items()
    }
    if args.repeats == 1:  # Searches that were checked count.
        steps = {name: step for name, step in steps.items() if name not in once}
    taken = interleave(steps, args.repeats, args.limit, is_warm=True)
    taken |= {name: [once[name]] for name in searches if name not in steps}
    rows: list[dict[str, Any]] = []
    for name, method in searches.items():
        share = len(sample) / size if method.is_quadratic else 1.0
        rows.append(
            {
                'rows': size,
                'channels': z.size(1),
                'k': k,
                'method': name + method.detail,
                'seconds': [seconds / share for seconds in taken[name]],
                'extrapolated': share < 1,
                'recall': recalls[name],
                'agrees': recalls[name] >= EXACT.get(name, 0.0),
            }
        )
    reference = rows[0]['seconds']
    for row in rows:
        pairs = zip(row['seconds'], reference, strict=True)
        row['ratio'] = statistics.median(seconds / ours for seconds, ours in pairs)
    return rows


def _run(search: Callable[[Tensor], Tensor], rows: Tensor) -> None:
    search(rows)


def cells(row: dict[str, Any]) -> list[str]:
    """Return the cells of a row of the table."""
    tilde = '~' if row['extrapolated'] else ''
    return [
        *(row['workload'], f'{row["rows"]:,}', str(row['k']), row['method']),
        tilde + format_number(statistics.median(row['seconds'])),
        tilde + format_number(row['ratio']),
        f'{row["recall"]:.4f}',
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table as comma-separated values."""
    text = io.StringIO()
    csv.writer(text, lineterminator='\n').writerows([HEADER, *map(cells, rows)])
    return text.getvalue()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--workloads', choices=WORKLOADS, nargs='+', default=WORKLOADS)
    parser.add_argument('--rows', type=at_least(1000), nargs='+', default=[100_000])
    parser.add_argument('--k', type=positive, nargs='+', default=[96, 10])
    parser.add_argument('--steps', type=positive, default=100, help='of the training')
    parser.add_argument('--targets', type=positive, default=2048)
    parser.add_argument('--repeats', type=positive, default=3)
    parser.add_argument('--without', nargs='+', default=[], help='methods to leave out')
    parser.add_argument('--limit', type=float, default=600.0, help='seconds of a case')
    parser.add_argument('--threads', type=positive, default=1)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--out', type=Path, default=HERE / 'results' / 'heaviest.json')
    parser.add_argument('--csv', type=Path, metavar='FILE', nargs='+')
    args = parser.parse_args(argv)
    if args.csv is not None:
        searches = (json.loads(path.read_text())['rows'] for path in args.csv)
        print(table([*chain.from_iterable(searches)]), end='')
        return 0
    if max(args.k) > min(args.rows):
        parser.error(f"'--k' must be at most '--rows' (got {max(args.k)})")
    torch.set_num_threads(args.threads)
    about = environment(
        **{k: v for k, v in vars(args).items() if k not in ('out', 'csv')}
    )
    rows: list[dict[str, Any]] = []
    print(line(HEADER), line(['---'] * len(HEADER)), sep='\n')
    for size in args.rows:
        for name in args.workloads:
            z = load(name, size, args.steps, args.seed)
            for k in args.k:
                new = [{'workload': name} | row for row in measure(z, k, args)]
                print(*(line(cells(row)) for row in new), sep='\n', flush=True)
                rows += new
                write_json(args.out, about | {'rows': rows})
    wrong = [line(cells(row)) for row in rows if not row['agrees']]
    print(*(f'disagrees: {text}' for text in wrong), sep='\n', end='')
    return int(bool(wrong))


if __name__ == '__main__':
    sys.exit(main())
