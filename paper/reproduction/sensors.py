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


class Kind(NamedTuple):
    """A graph, with its title."""

    title: str


KINDS = {
    'last reading': Kind('last reading'),
    'time of day': Kind('mean of the time of day'),
    'ridge, own': Kind('ridge, own readings, time of day'),
    'ridge, road': Kind('ridge, and those of road neighbours'),
    'ridge, lagged nearest': Kind('ridge, and of 9 nearest by lagged correlation'),
    'none': Kind('no graph'),
    'random': Kind('9 random sensors'),
    'uniform': Kind('mean of all sensors'),
    'attention': Kind('attention over all sensors'),
    'road': Kind('road graph'),
    'lagged nearest': Kind('9 nearest by lagged correlation'),
    'both, fixed': Kind('road graph; 9 nearest by lagged correlation'),
    'free vectors': Kind('learned, free vectors'),
    'lagged draws': Kind('learned, cosine of lagged series, draws'),
    'lagged series': Kind('learned, cosine of lagged series'),
    'both': Kind('learned, cosine of lagged series; road graph'),
    'last values': Kind('last readings, inverse distance chosen by validation'),
    'inverse distance': Kind('network, the same inverse distance'),
    'place': Kind('network, learned kernel of places'),
}
#: Forecasts without training, and the graphs of regressions.
PLAIN = ('last reading', 'time of day')
RIDGES = {
    'ridge, own': 'none',
    'ridge, road': 'road',
    'ridge, lagged nearest': 'lagged nearest',
}
LEARNED = ('free vectors', 'lagged draws', 'lagged series', 'both')
NEW_KINDS = ('lagged series', 'last values', 'inverse distance', 'place')


def read_cells(root: Path) -> dict[tuple[str, str, str, int], Cell]:
    """Return test errors by task, graph, measure, and index of the horizon."""
    found: dict[Any, dict[int, float]] = defaultdict(dict)
    for name, result in studies.read_runs(root / SENSORS, KINDS).items():
        task, kind, seed = name.split('/')
        for measure, values in result['test'].items():
            for place, value in enumerate(values):
                found[task, kind, measure, place][int(seed)] = value
    return {key: Cell(test) for key, test in found.items()}


def sensors_grid(task: str, root: Path) -> Grid:
    """Compare the errors of all graphs at each horizon."""
    cells = read_cells(root)
    kinds = [kind for kind in KINDS if (task, kind, 'rmse', 0) in cells]
    places = range(len(MINUTES))
    most = max((len(cells[task, k, 'rmse', 0].test) for k in kinds), default=0)
    least = [
        min(
            round(cell.mean, 2)
            for (t, k, measure, p), cell in cells.items()
            if (t, measure, p) == (task, 'rmse', place) and len(cell.test) == most
        )
        for place in places
        if kinds
    ]
    rows = []
    for kind in kinds:
        entries = []
        for place in places:
            pair = [cells[task, kind, measure, place] for measure in ('rmse', 'mae')]
            text = ' / '.join(f'{cell.mean:.2f}' for cell in pair)
            entries.append(Entry(text, '', round(pair[0].mean, 2) == least[place]))
        cell = cells[task, kind, 'rmse', places[-1]]
        spread = '' if len(cell.test) < 2 else f'{cell.std:.2f}'
        rows.append(
            (KINDS[kind].title, [*entries, Entry(spread), Entry(str(len(cell.test)))])
        )
    head = ['', *(f'{minutes} min' for minutes in MINUTES), 'deviation', 'seeds']
    note = (
        'Test errors in miles an hour, root mean squared / mean absolute: means over '
        'seeds. Bold: the lowest root mean squared error. Deviation: the standard '
        'deviation over seeds of the root mean squared error at 60 minutes.'
    )
    shared = agreement(root) if task == FORECAST else {}
    if shared:
        parts = (f'{KINDS[kind].title} {share:.0%}' for kind, share in shared.items())
        note += (
            ' Share of the 9 heaviest edges of a sensor that two seeds have in common '
            f'(mean): {"; ".join(parts)}.'
        )
    return Grid(head, rows, [note], 'no finished runs yet')


def agreement(root: Path) -> dict[str, float]:
    """Return the mean share of their heaviest edges that two seeds have in common."""
    edges: dict[str, list[Any]] = defaultdict(list)
    for name, result in studies.read_runs(root / SENSORS, KINDS).items():
        if 'edges' in result:
            edges[name.split('/')[1]].append(result['edges'])
    found = {}
    for kind, graphs in edges.items():
        shares = [
            len({*a} & {*b}) / len(a)
            for one, other in itertools.combinations(graphs, 2)
            for a, b in zip(one, other, strict=True)
        ]
        if shares:
            found[kind] = sum(shares) / len(shares)
    return found


def sensors_figure(root: Path) -> Figure | None:
    """Draw the heaviest learned edges of each sensor on a map, next to the roads."""
    runs = studies.read_runs(root / SENSORS, KINDS)
    run = runs.get(f'{FORECAST}/lagged series/0')
    if run is None:
        return None
    data = load().data
    place, ids = data['pos'].flip(1).numpy(), data['edge_index'].t().tolist()
    roads = {tuple(sorted(pair)) for pair in ids}
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
        left.plot(*place[list(pair)].T, color='0.6', linewidth=0.6, rasterized=True)
    for pair, known in sorted(
        zip(learned, is_road, strict=True), key=lambda one: one[1]
    ):
        colour, width = ('C0', 1.0) if known else ('C1', 0.4)
        style = {'color': colour, 'linewidth': width, 'rasterized': True}
        right.plot(*place[list(pair)].T, **style)
    shown = f'{share:.0%} of the {DRAWN} heaviest learned edges are roads (blue)'
    titles = f'road graph, {len(roads)} pairs', shown
    for ax, title in zip((left, right), titles, strict=True):
        ax.plot(*place.T, '.', color='k', markersize=3)
        ax.set(title=title, xticks=[], yticks=[], aspect=1.2)
    return figure


SEEDS = 5
#: Forecasts without a seed.
UNTRAINED = (*PLAIN, *RIDGES)
#: Number of heaviest edges per sensor that are stored.
KEPT = 9


class Run(NamedTuple):
    """A graph of a task, with a seed of the network and of the held-out sensors."""

    task: str
    kind: str
    seed: int

    def __str__(self) -> str:
        return f'{self.task}/{self.kind}/{self.seed}'


def execute(run: Run, setting: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return validation and test errors, and the heaviest edges of a learned graph."""
    torch.set_num_threads(1)
    warnings.filterwarnings('ignore', 'Sparse')
    traffic = load()
    if run.task == NEW:
        return str(run), forecast_new(run, traffic, setting)
    if run.kind in UNTRAINED:
        steps = traffic.val, traffic.test
        if run.kind in PLAIN:
            found = [plain_forecast(run.kind, traffic, step) for step in steps]
        else:
            found = [*ridge(traffic, fixed_graph(RIDGES[run.kind], traffic))]
        both = zip(steps, found, strict=True)
        scores = [errors(speed, traffic.targets(step)) for step, speed in both]
        return str(run), dict(zip(('val', 'test'), scores, strict=True))
    seed_everything(run.seed)
    model = Forecaster(run.kind, traffic, setting)
    parts = traffic.train, traffic.val, traffic.test
    every = torch.arange(len(traffic.mean))
    result: dict[str, Any] = fit(model, traffic, parts, [every] * 3, setting)
    if run.kind in LEARNED:
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
    held, kept = order[:HELD_OUT].sort().values, order[HELD_OUT:].sort().values
    if run.kind == 'last values':
        weights = choose_inverse(traffic, kept)
        found: dict[str, Any] = {'choice': weights}
        told = {'val': (traffic.val, kept), 'test': (traffic.test, held)}
        for part, (step, sensors) in told.items():
            speed = last_values(traffic, step, kept, sensors, *weights)
            found[part] = errors(speed, traffic.targets(step)[:, sensors])
        return found
    model = NewSensors(run.kind, traffic, kept, setting)
    parts = traffic.train, traffic.val, traffic.test
    return fit(model, traffic, parts, [kept, kept, held], setting)


def heaviest(graph: SampledGraph, num_targets: int) -> list[list[int]]:
    """List the sources of the heaviest edges of each target, the heaviest first."""
    edge_index, weight = graph
    found = []
    for target in range(num_targets):
        own = (edge_index[1] == target).nonzero().flatten()
        best = own[weight[own].argsort(descending=True)[:KEPT]]
        found.append(edge_index[0, best].tolist())
    return found


def main(arguments: list[str] | None = None, setting: dict[str, Any] = SETTING) -> None:
    lists = {'tasks': [FORECAST, NEW], 'kinds': list(KINDS)}
    args = parse_args(arguments, 'sensors', __doc__, lists, SEEDS)
    kinds = {FORECAST: [k for k in KINDS if k not in NEW_KINDS[1:]], NEW: NEW_KINDS}
    wanted = [
        Run(task, kind, seed)
        for task in args.tasks
        for seed in range(args.seeds)
        for kind in kinds[task]
        if kind in args.kinds and (seed == 0 or kind not in UNTRAINED)
    ]
    results = Results(args.results / SENSORS, setting, KINDS)
    results.complete('sensors', wanted, execute, args.jobs)
