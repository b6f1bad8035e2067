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

import warnings
from typing import Any, NamedTuple

import torch
from torch_geometric import seed_everything

from reproduction.own_runs import Results, parse_args
from reproduction.sensors_data import Traffic, errors, load, plain_forecast, ridge
from reproduction.sensors_models import SETTING, Forecaster, fit, fixed_graph
from reproduction.sensors_new import (
    HELD_OUT,
    NewSensors,
    choose_inverse,
    last_values,
)
from reproduction.sensors_tables import (
    FORECAST,
    KINDS,
    LEARNED,
    NEW,
    NEW_KINDS,
    PLAIN,
    RIDGES,
    SENSORS,
)
from torch_geometric_gsl.typing import SampledGraph

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
