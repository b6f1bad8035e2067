"""Forecast traffic sensors on fixed or learned graphs.

    python paper/run.py sensors
    python paper/run.py sensors --tasks forecast --kinds none 'lagged series'

`forecast` predicts speeds 15, 30 and 60 minutes after an hour of readings of 207
sensors, with one small network for all graphs; `ridge` rows are regressions per sensor.
`new` predicts ten sensors that the network has not seen, another ten for each seed,
only from the readings of the others. 70 % of the week is for training, 10 % for
validation, which selects the epoch. Finished runs are stored in
`<results>/sensors.json`; a restarted run continues with the missing ones.
"""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch_geometric import seed_everything

from reproduction import studies
from reproduction.sensors_data import Traffic, errors, load, plain_forecast, ridge
from reproduction.sensors_models import (
    HELD_OUT,
    SETTING,
    Forecaster,
    NewSensors,
    choose_inverse,
    fit,
    fixed_graph,
    last_values,
)
from reproduction.studies import Results, parse_args
from reproduction.summary import Cell
from reproduction.tables import Entry, Grid
from torch_geometric_gsl.typing import SampledGraph

#: Results of :mod:`reproduction.sensors`.
SENSORS = 'sensors.json'
#: Tasks: all sensors from their own windows, or new ones from those of others.
FORECAST, NEW = 'forecast', 'new'
MINUTES = (15, 30, 60)
#: Edges per sensor on the map.
DRAWN = 3


class GraphTitle(NamedTuple):
    """A graph, with its title."""

    title: str


GRAPHS = {
    'last reading': GraphTitle('last reading'),
    'time of day': GraphTitle('mean of the time of day'),
    'ridge, own': GraphTitle('ridge, own readings, time of day'),
    'ridge, road': GraphTitle('ridge, and those of road neighbours'),
    'ridge, lagged nearest': GraphTitle(
        'ridge, and of 9 nearest by lagged correlation'
    ),
    'none': GraphTitle('no graph'),
    'random': GraphTitle('9 random sensors'),
    'uniform': GraphTitle('mean of all sensors'),
    'attention': GraphTitle('attention over all sensors'),
    'road': GraphTitle('road graph'),
    'lagged nearest': GraphTitle('9 nearest by lagged correlation'),
    'both, fixed': GraphTitle('road graph; 9 nearest by lagged correlation'),
    'free vectors': GraphTitle('learned, free vectors'),
    'lagged draws': GraphTitle('learned, cosine of lagged series, draws'),
    'lagged series': GraphTitle('learned, cosine of lagged series'),
    'both': GraphTitle('learned, cosine of lagged series; road graph'),
    'last values': GraphTitle('last readings, inverse distance chosen by validation'),
    'inverse distance': GraphTitle('network, the same inverse distance'),
    'place': GraphTitle('network, learned kernel of places'),
}
#: Forecasts without training, and the graphs of regressions.
PLAIN = ('last reading', 'time of day')
RIDGES = {
    'ridge, own': 'none',
    'ridge, road': 'road',
    'ridge, lagged nearest': 'lagged nearest',
}
LEARNED = ('free vectors', 'lagged draws', 'lagged series', 'both')
NEW_GRAPHS = ('lagged series', 'last values', 'inverse distance', 'place')


def read_cells(root: Path) -> dict[tuple[str, str, str, int], Cell]:
    """Return test errors by task, graph, measure, and index of the horizon."""
    tests: dict[Any, dict[int, float]] = defaultdict(dict)
    for name, result in studies.read_runs(root / SENSORS, GRAPHS).items():
        task, graph_name, seed = name.split('/')
        for measure, values in result['test'].items():
            for horizon, value in enumerate(values):
                tests[task, graph_name, measure, horizon][int(seed)] = value
    return {key: Cell(test) for key, test in tests.items()}


def sensors_grid(task: str, root: Path) -> Grid:
    """Compare the errors of all graphs at each horizon."""
    cells = read_cells(root)
    graph_names = [
        graph_name for graph_name in GRAPHS if (task, graph_name, 'rmse', 0) in cells
    ]
    horizons = range(len(MINUTES))
    num_runs = max(
        (len(cells[task, k, 'rmse', 0].test) for k in graph_names), default=0
    )
    lowest = [
        min(
            round(cell.mean, 2)
            for (t, k, measure, p), cell in cells.items()
            if (t, measure, p) == (task, 'rmse', horizon) and len(cell.test) == num_runs
        )
        for horizon in horizons
        if graph_names
    ]
    rows = []
    for graph_name in graph_names:
        entries = []
        for horizon in horizons:
            pair = [
                cells[task, graph_name, measure, horizon] for measure in ('rmse', 'mae')
            ]
            text = ' / '.join(f'{cell.mean:.2f}' for cell in pair)
            entries.append(Entry(text, '', round(pair[0].mean, 2) == lowest[horizon]))
        cell = cells[task, graph_name, 'rmse', horizons[-1]]
        spread = '' if len(cell.test) < 2 else f'{cell.std:.2f}'
        rows.append(
            (
                GRAPHS[graph_name].title,
                [*entries, Entry(spread), Entry(str(len(cell.test)))],
            )
        )
    head = ['', *(f'{minutes} min' for minutes in MINUTES), 'deviation', 'seeds']
    note = (
        'Test errors in miles an hour, root mean squared / mean absolute: means over '
        'seeds. Bold: the lowest root mean squared error. Deviation: the standard '
        'deviation over seeds of the root mean squared error at 60 minutes.'
    )
    shared = agreement(root) if task == FORECAST else {}
    if shared:
        shares = (
            f'{GRAPHS[graph_name].title} {share:.0%}'
            for graph_name, share in shared.items()
        )
        note += (
            ' Share of the 9 heaviest edges of a sensor that two seeds have in common '
            f'(mean): {"; ".join(shares)}.'
        )
    return Grid(head, rows, [note], 'no finished runs yet')


def agreement(root: Path) -> dict[str, float]:
    """Return the mean share of their heaviest edges that two seeds have in common."""
    edges: dict[str, list[Any]] = defaultdict(list)
    for name, result in studies.read_runs(root / SENSORS, GRAPHS).items():
        if 'edges' in result:
            edges[name.split('/')[1]].append(result['edges'])
    mean_shares = {}
    for graph_name, graphs in edges.items():
        shares = [
            len({*a} & {*b}) / len(a)
            for sources, other_sources in itertools.combinations(graphs, 2)
            for a, b in zip(sources, other_sources, strict=True)
        ]
        if shares:
            mean_shares[graph_name] = sum(shares) / len(shares)
    return mean_shares


def sensors_figure(root: Path) -> Figure | None:
    """Draw the heaviest learned edges of each sensor on a map, next to the roads."""
    runs = studies.read_runs(root / SENSORS, GRAPHS)
    run = runs.get(f'{FORECAST}/lagged series/0')
    if run is None:
        return None
    data = load().data
    position = data['pos'].flip(1).numpy()
    edges = data['edge_index'].t().tolist()
    roads = {tuple(sorted(pair)) for pair in edges}
    learned = [
        (source, target)
        for target, sources in enumerate(run['edges'])
        for source in sources[:DRAWN]
    ]
    is_road = [tuple(sorted(pair)) in roads for pair in learned]
    share = sum(is_road) / len(is_road)
    figure = Figure(figsize=(10, 4.6), layout='constrained')
    left, right = figure.subplots(1, 2)
    for pair in sorted(roads):
        left.plot(*position[list(pair)].T, color='0.6', linewidth=0.6, rasterized=True)
    for drawn, colour, width in ((False, 'C1', 0.4), (True, 'C0', 1.0)):
        style = {'color': colour, 'linewidth': width, 'rasterized': True}
        for pair, road in zip(learned, is_road, strict=True):
            if road == drawn:
                right.plot(*position[list(pair)].T, **style)
    shown = f'{share:.0%} of the {DRAWN} heaviest learned edges are roads (blue)'
    titles = f'road graph, {len(roads)} pairs', shown
    for ax, title in zip((left, right), titles, strict=True):
        ax.plot(*position.T, '.', color='k', markersize=3)
        ax.set(title=title, xticks=[], yticks=[], aspect=1.2)
    return figure


SEEDS = 5
#: Forecasts without a seed.
UNTRAINED = (*PLAIN, *RIDGES)
#: Number of heaviest edges per sensor that are stored.
NUM_STORED = 9


class Run(NamedTuple):
    """A graph of a task, with a seed of the network and of the held-out sensors."""

    task: str
    graph_name: str
    seed: int

    def __str__(self) -> str:
        return f'{self.task}/{self.graph_name}/{self.seed}'


def execute(run: Run, setting: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return validation and test errors, and the heaviest edges of a learned graph."""
    torch.set_num_threads(1)
    warnings.filterwarnings('ignore', 'Sparse')
    traffic = load()
    if run.task == NEW:
        return str(run), forecast_new(run, traffic, setting)
    if run.graph_name in UNTRAINED:
        tested = traffic.val, traffic.test
        if run.graph_name in PLAIN:
            speeds = [plain_forecast(run.graph_name, traffic, step) for step in tested]
        else:
            speeds = [*ridge(traffic, fixed_graph(RIDGES[run.graph_name], traffic))]
        pairs = zip(tested, speeds, strict=True)
        scores = [errors(speed, traffic.targets(step)) for step, speed in pairs]
        return str(run), dict(zip(('val', 'test'), scores, strict=True))
    seed_everything(run.seed)
    model = Forecaster(run.graph_name, traffic, setting)
    steps = traffic.train, traffic.val, traffic.test
    every = torch.arange(len(traffic.mean))
    result: dict[str, Any] = fit(model, traffic, steps, [every] * 3, setting)
    if run.graph_name in LEARNED:
        graphs = [
            g for k, g in zip(model.fixed, model.graphs(), strict=True) if k != 'road'
        ]
        result['edges'] = heaviest(graphs[0], len(traffic.mean))
        if model.lagged is not None:
            result['scale'] = float(model.lagged.sampler.scale)
    return str(run), result


def forecast_new(run: Run, traffic: Traffic, setting: dict[str, Any]) -> dict[str, Any]:
    """Return the errors of forecasts of ten sensors, which depend on the seed."""
    seed_everything(run.seed)
    n = len(traffic.mean)
    order = torch.randperm(n)
    new, sources = order[:HELD_OUT].sort().values, order[HELD_OUT:].sort().values
    if run.graph_name == 'last values':
        choice = choose_inverse(traffic, sources)
        result: dict[str, Any] = {'choice': choice}
        cases = {'val': (traffic.val, sources), 'test': (traffic.test, new)}
        for split, (step, sensors) in cases.items():
            speed = last_values(traffic, step, sources, sensors, *choice)
            result[split] = errors(speed, traffic.targets(step)[:, sensors])
        return result
    model = NewSensors(run.graph_name, traffic, sources, setting)
    steps = traffic.train, traffic.val, traffic.test
    return fit(model, traffic, steps, [sources, sources, new], setting)


def heaviest(graph: SampledGraph, num_targets: int) -> list[list[int]]:
    """List the sources of the heaviest edges of each target, the heaviest first."""
    edge_index, weight = graph
    sources = []
    for target in range(num_targets):
        edges = (edge_index[1] == target).nonzero().flatten()
        best = edges[weight[edges].argsort(descending=True)[:NUM_STORED]]
        sources.append(edge_index[0, best].tolist())
    return sources


def main(arguments: list[str] | None = None, setting: dict[str, Any] = SETTING) -> None:
    lists = {'tasks': [FORECAST, NEW], 'kinds': list(GRAPHS)}
    args = parse_args(arguments, 'sensors', __doc__, lists, SEEDS)
    graph_names = {
        FORECAST: [k for k in GRAPHS if k not in NEW_GRAPHS[1:]],
        NEW: NEW_GRAPHS,
    }
    runs = [
        Run(task, graph_name, seed)
        for task in args.tasks
        for seed in range(args.seeds)
        for graph_name in graph_names[task]
        if graph_name in args.kinds and (seed == 0 or graph_name not in UNTRAINED)
    ]
    results = Results(args.results / SENSORS, setting, GRAPHS)
    results.complete('sensors', runs, execute, args.jobs)
