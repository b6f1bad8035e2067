"""Choose the defaults of samplers, layers and nets by regret over many data sets.

    python benchmark/defaults.py results.json [--jobs 2] [--seeds 5] [--only wine ...]
    python benchmark/defaults.py results.json --table [--whole]

A task is a data set with 5 or 20 labels a class, or half of the rows; a hidden relation
at an angle; or coupled sensors. All candidates and controls see the same rows, labels
and steps, and no result chooses the epoch. The regret of a candidate in a task is what
its mean score lacks to that of the best row, a control or not, in points: of accuracy,
or of the explained variance. A small mean regret is wanted; that over the data sets
alone, where all controls serve, and the largest one stand beside it. Rows without a
label validate: there are no test rows.

Finished runs are stored in the file; a restarted command continues with the others.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from record import environment, write_json
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss
from torch_geometric import seed_everything
from torch_geometric.data import Batch, Data
from torch_geometric.nn.models import GCN, MLP, GraphSAGE, LabelPropagation
from torch_geometric.utils import k_hop_subgraph, subgraph
from tqdm import tqdm

import torch_geometric_gsl as gsl
from reproduction import attacked_data
from reproduction.datasets import load_dataset
from torch_geometric_gsl.datasets import CoupledSensors, HiddenRelation
from torch_geometric_gsl.nn.similarity import resolve_similarity
from torch_geometric_gsl.transforms import SimilarityKNNGraph

#: The number of labels of a class; half of the rows where it is None.
LABELS = 5, 20, None
#: The most rows of a data set, drawn by the seed, which are near each other in a given
#: graph; and the most columns, those with the most entries.
ROWS, COLUMNS = 256, 500
HIDDEN, EPOCHS = 64, 80
ANGLES = 40, 80, 120
RELATION_STEPS, RELATION_GRAPHS = 200, 2
SENSOR_STEPS, LAGS = 200, 12
LR, WEIGHT_DECAY = 0.01, 5e-4

BELL = {
    'similarity': 'neural_gaussian',
    'similarity_kwargs': {'bias': True, 'centre': 'tanh'},
}
MIXTURE: dict[str, Any] = {
    'similarity': 'mixture',
    'k': 5,
    'tau': 0.5,
    'scale': 20.0,
    'train_scale': True,
    'loop': False,
    'z_channels': -1,
}


def mixture(share: float) -> dict[str, Any]:
    return MIXTURE | {'similarity_kwargs': {'share': share}}


#: The options of a net; all others are those of the mixture.
CANDIDATES: dict[str, dict[str, Any]] = {
    'mixture': MIXTURE,
    'mixture, share 0.73': mixture(0.73),
    'mixture, share 0.27': mixture(0.27),
    'linear': MIXTURE | {'similarity': 'linear'},
    'bell': MIXTURE | BELL,
    'neural Gaussian': MIXTURE | {'similarity': 'neural_gaussian'},
    'distance': MIXTURE | {'similarity': 'distance'},
    'heat kernel': MIXTURE | {'similarity': 'heat_kernel'},
    'uniform': MIXTURE | {'similarity': 'uniform'},
    'scale 1': MIXTURE | {'scale': 1.0},
    'scale 5': MIXTURE | {'scale': 5.0},
    'scale 10': MIXTURE | {'scale': 10.0},
    'scale 40': MIXTURE | {'scale': 40.0},
    'fixed scale': MIXTURE | {'train_scale': False},
    'fixed scale 40': MIXTURE | {'train_scale': False, 'scale': 40.0},
    'tau 0.25': MIXTURE | {'tau': 0.25},
    'tau 1': MIXTURE | {'tau': 1.0},
    'tau 1, fixed scale': MIXTURE | {'tau': 1.0, 'train_scale': False},
    'tau 1, scale 40': MIXTURE | {'tau': 1.0, 'scale': 40.0},
    'k 1': MIXTURE | {'k': 1},
    'k 20': MIXTURE | {'k': 20},
    'loops': MIXTURE | {'loop': True},
    'null neighbour': MIXTURE | {'null_score': 0.0},
    'projections': MIXTURE | {'z_channels': None},
}
CONTROLS = 'MLP', 'nearest rows', 'label propagation', 'given graph'


class Rows(NamedTuple):
    """A data set of which some rows are labelled, and others validate."""

    x: Tensor
    y: Tensor
    train: Tensor
    edge_index: Tensor | None = None


# What data sets consist of: rows, classes, and edges where a graph is given.
Source = tuple[Tensor, Tensor, Tensor | None]


def load_rows(name: str, seed: int) -> Source:
    data: Any = load_dataset(name)
    x = data.x if data.x.layout == torch.strided else data.x.to_dense()
    generator = torch.Generator().manual_seed(seed)
    row_indices = torch.randperm(len(x), generator=generator)[:ROWS]
    return frequent(x[row_indices]), data.y[row_indices], None


def frequent(x: Tensor) -> Tensor:
    """Return the columns with the most entries."""
    return x[:, x.count_nonzero(dim=0).topk(min(COLUMNS, x.size(1))).indices]


def load_raw(seed: int) -> Source:
    """Return digits whose columns are divided by 16, so that all cosines are large."""
    digits = load_digits()
    x = torch.from_numpy(digits.data).float() / 16
    generator = torch.Generator().manual_seed(seed)
    row_indices = torch.randperm(len(x), generator=generator)[:ROWS]
    return x[row_indices], torch.from_numpy(digits.target)[row_indices], None


def load_graph(rate: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return what lies near a node of CiteSeer at a rate of attack."""
    graph = attacked_data.load('CiteSeer', rate=rate, k=1)
    generator = torch.Generator().manual_seed(seed)
    near = torch.randint(len(graph.y), (1,), generator=generator)
    for _ in range(len(graph.y)):
        near, *_ = k_hop_subgraph(near, 1, graph.edge_index)
        if len(near) >= ROWS:
            break
    edge_index, _ = subgraph(near, graph.edge_index, relabel_nodes=True)
    return frequent(graph.x.to_dense()[near]), graph.y[near], edge_index


def load_noisy(seed: int) -> Source:
    """Return a part of CiteSeer with as many random edges as true ones."""
    x, y, edge_index = load_graph(0, seed)
    generator = torch.Generator().manual_seed(seed)
    random = torch.randint(len(y), edge_index.shape, generator=generator)
    return x, y, torch.cat([edge_index, random], dim=1)


def load_cloud(seed: int) -> Source:
    """Return points in a cube, of the class of the nearest of 24 centres."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(ROWS, 3, generator=generator) - 0.5
    centres = torch.rand(24, 3, generator=generator) - 0.5
    return points, torch.cdist(points, centres).argmin(dim=1) % 6, None


NAMES = 'digits', 'wine', 'breast_cancer', 'CiteSeer', 'PubMed', 'Chameleon', '20News'
SOURCES: dict[str, Callable[[int], Source]] = {
    **{name: cache(partial(load_rows, name)) for name in NAMES},
    'raw digits': cache(load_raw),
    'attacked': cache(partial(load_graph, 25)),
    'noisy': cache(load_noisy),
    'cloud': cache(load_cloud),
}


def split(name: str, labels: int | None, seed: int) -> Rows:
    """Label some rows of each class, or half; all others validate."""
    x, y, edge_index = SOURCES[name](seed)
    generator = torch.Generator().manual_seed(1000 + seed)
    order = torch.randperm(len(y), generator=generator)
    if labels is None:
        train = order[: len(y) // 2]
    else:
        groups = [order[y[order] == c][:labels] for c in range(int(y.max()) + 1)]
        train = torch.cat(groups)
    is_train = torch.zeros(len(y), dtype=torch.bool)
    is_train[train] = True
    return Rows(x, y, is_train, edge_index)


def nearest(x: Tensor) -> Tensor:
    edge_index: Tensor = SimilarityKNNGraph(10)(Data(x=x)).edge_index
    return edge_index


class Control(torch.nn.Module):
    """A network on a fixed graph, or on none."""

    def __init__(self, name: str, rows: Rows, num_classes: int) -> None:
        super().__init__()
        self.edge_index = rows.edge_index
        sizes: dict[str, Any] = {'num_layers': 2, 'hidden_channels': HIDDEN}
        sizes |= {
            'dropout': 0.5,
            'in_channels': rows.x.size(1),
            'out_channels': num_classes,
        }
        self.net: Any
        if name == 'MLP':
            self.net = MLP(**sizes, norm=None)
        elif name == 'nearest rows':
            self.edge_index = nearest(rows.x)
            self.net = GraphSAGE(**sizes)
        else:
            self.net = GCN(**sizes)

    def forward(self, x: Tensor, edge_index: Tensor | None = None) -> Tensor:
        args = () if isinstance(self.net, MLP) else (self.edge_index,)
        out: Tensor = self.net(x, *args)
        return out


def fit_rows(name: str, rows: Rows, seed: int) -> float | None:
    """Train a net, and return its accuracy on the validation rows."""
    num_classes = int(rows.y.max()) + 1
    if name == 'given graph' and rows.edge_index is None:
        return None
    if name == 'label propagation':
        edge_index = rows.edge_index
        if edge_index is None:
            edge_index = nearest(rows.x)
        propagate: Any = LabelPropagation(50, 0.9)  # type: ignore[abstract]
        out = propagate(rows.y, edge_index, rows.train)
        return accuracy(out, rows)
    seed_everything(seed)
    model: Any = (
        Control(name, rows, num_classes)
        if name in CONTROLS
        else gsl.GSLNet(rows.x.size(1), HIDDEN, 2, num_classes, **CANDIDATES[name])
    )
    optimizer = torch.optim.AdamW(model.parameters(), LR, weight_decay=WEIGHT_DECAY)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        out = model(rows.x, rows.edge_index)
        cross_entropy(out[rows.train], rows.y[rows.train]).backward()
        optimizer.step()
    with torch.no_grad():
        return accuracy(model.eval()(rows.x, rows.edge_index), rows)


def accuracy(out: Tensor, rows: Rows) -> float:
    return float((out.argmax(dim=1) == rows.y)[~rows.train].double().mean())


def sampler_options(name: str) -> dict[str, Any]:
    options = {'similarity_kwargs': {}} | CANDIDATES[name]
    return {key: value for key, value in options.items() if key != 'z_channels'}


def fit_relation(name: str, delta: int, seed: int) -> float | None:
    """Train a sampler to average related nodes; return the explained variance."""
    if name == 'projections' or name in CONTROLS[1:]:
        return None
    seed_everything(seed)
    model: Any
    if name == 'MLP':
        model = MLP([3, 32, 1], norm=None)
    else:
        options = sampler_options(name)
        similarity_args = options.pop('similarity'), 2
        similarity = resolve_similarity(
            *similarity_args, **options.pop('similarity_kwargs')
        )
        model = gsl.GumbelKNNSampler(similarity, **options)

    def wrong(data: Any) -> Tensor:
        if isinstance(model, MLP):
            return mse_loss(model(torch.cat([data.pos, data.x], dim=1)), data.y)
        return mse_loss(model.propagate(data.pos, data.x, batch=data.batch), data.y)

    def draw(num_graphs: int, seed: int) -> list[Any]:
        graphs: Any = HiddenRelation(num_graphs, delta=delta, seed=seed)
        return list(graphs)

    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    graphs = draw(RELATION_STEPS * RELATION_GRAPHS, 10 * seed + 1)
    for step in range(RELATION_STEPS):
        optimizer.zero_grad()
        batch = graphs[step * RELATION_GRAPHS :][:RELATION_GRAPHS]
        wrong(Batch.from_data_list(batch)).backward()
        optimizer.step()
    data: Any = Batch.from_data_list(draw(20, 2))
    with torch.no_grad():
        model.eval()
        return max(0.0, 1 - float(wrong(data) / data.y.var(correction=0)))


def fit_sensors(name: str, seed: int) -> float | None:
    """Forecast the next values of sensors from their last ones."""
    if name in CONTROLS[1:]:
        return None
    dataset = CoupledSensors(num_steps=600, coupling='linear', seed=seed)
    windows, target = dataset.windows(LAGS)
    x, y = windows.squeeze(3).transpose(1, 2), target.squeeze(3).squeeze(1)
    seed_everything(seed)
    model: Any = (
        MLP([LAGS, HIDDEN, 1], norm=None)
        if name in CONTROLS
        else gsl.GSLNet(LAGS, HIDDEN, 2, 1, dropout=0.0, **CANDIDATES[name])
    )
    num_sensors = y.size(1)

    def forecast(steps: Tensor) -> Tensor:
        rows = x[steps].reshape(-1, LAGS)
        batch = torch.arange(len(steps)).repeat_interleave(num_sensors)
        args = {} if name in CONTROLS else {'batch': batch}
        out: Tensor = model(rows, **args)
        return out.view(-1, num_sensors)

    num_train = len(y) * 3 // 4
    optimizer = torch.optim.AdamW(model.parameters(), LR, weight_decay=WEIGHT_DECAY)
    for _ in range(SENSOR_STEPS):
        steps = torch.randint(num_train, (32,))
        optimizer.zero_grad()
        mse_loss(forecast(steps), y[steps]).backward()
        optimizer.step()
    held_out = torch.arange(num_train, len(y))
    with torch.no_grad():
        model.eval()
        error = mse_loss(forecast(held_out), y[held_out])
    return max(0.0, 1 - float(error / y[held_out].var(correction=0)))


def task_names() -> list[str]:
    tasks = [f'{name}, {labels or "half"}' for name in SOURCES for labels in LABELS]
    return [*tasks, *(f'relation {delta}' for delta in ANGLES), 'sensors']


def fit(task: str, name: str, seed: int) -> dict[str, Any]:
    """Return the validation score of a model, in percent, and its seconds."""
    torch.set_num_threads(1)
    warnings.simplefilter('ignore')
    begin = time.perf_counter()
    source, _, labels = task.partition(', ')
    if task == 'sensors':
        score = fit_sensors(name, seed)
    elif task.startswith('relation'):
        score = fit_relation(name, int(task.split()[1]), seed)
    else:
        rows = split(source, None if labels == 'half' else int(labels), seed)
        score = fit_rows(name, rows, seed)
    seconds = round(time.perf_counter() - begin, 1)
    return {'score': None if score is None else 100 * score, 'seconds': seconds}


def run(path: Path, args: argparse.Namespace) -> None:
    results = json.loads(path.read_text()) if path.exists() else {'runs': {}}
    results['environment'] = environment()
    units = [
        (task, name, seed)
        for seed in range(args.seeds)
        for task in args.only
        for name in args.models
        if '|'.join([task, name, str(seed)]) not in results['runs']
    ]
    with ProcessPoolExecutor(args.jobs) as pool:
        waiting = {pool.submit(fit, *unit): unit for unit in units}
        for done in tqdm(as_completed(waiting), total=len(units)):
            results['runs']['|'.join(map(str, waiting[done]))] = done.result()
            write_json(path, results)


def regrets(path: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the tasks with the mean scores of all rows."""
    runs = json.loads(path.read_text())['runs']
    scores: dict[str, dict[str, list[float]]] = {}
    for key, result in runs.items():
        task, name, _ = key.split('|')
        if result['score'] is not None:
            scores.setdefault(task, {}).setdefault(name, []).append(result['score'])
    for task in task_names():
        means = scores.get(task, {})
        if means:
            yield task, {name: statistics.mean(means[name]) for name in means}


def mean(numbers: list[float], digits: int) -> str:
    return f'{statistics.mean(numbers):.{digits}f}' if numbers else ''


def table(path: Path, *, is_whole: bool = False) -> None:
    """Print the mean and the largest regret of each row, and its mean by data set.

    The whole table has a column per task.
    """
    tasks = list(regrets(path))
    groups: dict[str, list[dict[str, float]]] = {}
    for task, scores in tasks:
        name = task if is_whole else task.partition(', ')[0].rstrip('0123456789 ')
        groups.setdefault(name, []).append(scores)
    print(','.join(['row', 'mean', 'rows', 'worst', *(f'"{name}"' for name in groups)]))
    for name in [*CONTROLS, *CANDIDATES]:
        lacks = [
            [max(scores.values()) - scores[name] for scores in group if name in scores]
            for group in groups.values()
        ]
        all_regrets = [lack for group in lacks for lack in group]
        if all_regrets:
            of_rows = [
                max(scores.values()) - scores[name]
                for _, scores in tasks
                if name in scores and 'nearest rows' in scores
            ]
            cells = mean(all_regrets, 2), mean(of_rows, 2), f'{max(all_regrets):.1f}'
            print(f'"{name}"', *cells, *(mean(group, 1) for group in lacks), sep=',')


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('results', type=Path)
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--jobs', type=int, default=os.cpu_count())
    parser.add_argument('--only', nargs='+', choices=task_names(), default=task_names())
    names = [*CONTROLS, *CANDIDATES]
    parser.add_argument('--models', nargs='+', choices=names, default=names)
    parser.add_argument('--table', action='store_true')
    parser.add_argument('--whole', action='store_true', help='a column per task')
    args = parser.parse_args()
    if not args.table:
        run(args.results, args)
    table(args.results, is_whole=args.whole)
