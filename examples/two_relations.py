"""Learn two relations at once, for which one learned graph is not enough.

Nodes on a circle observe the noisy value of a function, and predict its mean at two
angles to both sides (`examples/hidden_relation.py` has one angle). A layer with one
bell, and one with two, have to find these nodes. Two bells start wide and are trained
once. A single wide bell would stay between the relations, so it is trained from narrow
starts at four angles; validation selects one.

    python examples/two_relations.py
    python examples/two_relations.py --seeds 1 --picture runs/two_relations.png
"""

from __future__ import annotations

import argparse
import math
from functools import partial
from pathlib import Path
from typing import Any

import hidden_relation as hidden
import torch
from matplotlib.figure import Figure
from torch import Tensor

import torch_geometric_gsl as gsl

# Initial angles of a single narrow bell, in degrees.
STARTS = (30, 65, 105, 140)
COLORS = ('#0072B2', '#D55E00')


LAYER: dict[str, Any] = {'tau': 1.0, 'scale': 5.0, **hidden.LAYER}


def two_bells() -> hidden.GraphLayer:
    wide = {'bias': True, 'centre': 'tanh'}
    options = {'similarity': 'neural_gaussian', 'similarity_kwargs': wide, **LAYER}
    return hidden.GraphLayer(gsl.MultiplexLatentGraphConv(1, 1, 2, **options))


def one_bell(start: float) -> hidden.GraphLayer:
    bell = gsl.NeuralGaussianSimilarity(2, c_scale=0.1, bias=True, centre='tanh')
    bell.begin_at(math.cos(math.radians(start)))
    return hidden.GraphLayer(gsl.LatentGraphConv(1, 1, bell, **LAYER))


ROWS: dict[str, tuple[hidden.Make, ...]] = {
    'MLP, no graph': (hidden.MODELS['MLP, no graph'],),
    'nearest nodes': (hidden.MODELS['nearest nodes'],),
    'uniform graph': (hidden.MODELS['random neighbours'],),
    'one bell': tuple(partial(one_bell, start) for start in STARTS),
    'two bells': (two_bells,),
}


def edge_means(data: Any) -> Tensor:
    """Return mean values over the true edges of each kind, and a column of ones."""
    edges = [hidden.true_matrix(data, kind) for kind in range(2)]
    means = [true @ data.x / true.sum(1, keepdim=True).clamp(min=1) for true in edges]
    return torch.cat([*means, torch.ones_like(data.x)], dim=1)


def true_error(test: Any, args: argparse.Namespace) -> float:
    """Compute the error of a linear fit to the means over the true edges."""
    data = hidden.draw_batch(args, 10, args.seed * 1_000 + 3)
    line = torch.linalg.lstsq(edge_means(data), data.y).solution
    return hidden.relative_error(lambda data: edge_means(data) @ line, test)


def print_precision(name: str, model: hidden.GraphLayer, data: Any) -> None:
    """Print the share of true edges of each kind among the nearest sources."""
    for number, sampler in enumerate(model.samplers(), start=1):
        near = hidden.nearest(sampler, data.pos).topk(sampler.k, dim=1).indices
        edges = (hidden.true_matrix(data, kind) for kind in range(2))
        first, second = (float(true.gather(1, near).mean()) for true in edges)
        print(f'{name}, bell {number}: {first:.0%} and {second:.0%} are true edges')


@torch.no_grad()
def response(sampler: gsl.GumbelKNNSampler, angle: Tensor) -> Tensor:
    """Compute sampling probabilities over angles, averaged over 12 targets."""
    target = torch.arange(0.0, 360.0, 30.0).unsqueeze(1)
    place = (torch.cat([target, target + angle], dim=1)).deg2rad()
    score = [
        sampler.factor * sampler.similarity((circle[1:], circle[:1]))
        for circle in torch.stack([place.cos(), place.sin()], dim=2)
    ]
    return torch.cat(score).softmax(dim=1).mean(dim=0)


def draw_responses(models: dict[str, Any], delta: Any, path: Path) -> None:
    """Draw the learned responses over the angle, and the true relations."""
    figure = Figure(figsize=(8, 3.4), layout='constrained')
    ax, angle = figure.subplots(), torch.arange(181.0)
    for number, center in enumerate(delta):
        span, label = (center - 10, center + 10), f'true relation at {center:g}°'
        ax.axvspan(*span, color=COLORS[number], alpha=0.2, label=label)
    for number, sampler in enumerate(models['two bells'].samplers()):
        curve, label = response(sampler, angle), f'two bells, number {number + 1}'
        ax.plot(angle, curve, color=COLORS[number], label=label)
    (single,) = models['one bell'].samplers()
    ax.plot(angle, response(single, angle), '--', color='#777777', label='one bell')
    ax.set(xlabel='angle between target and source', ylabel='share of draws')
    figure.legend(loc='outside right upper', frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument('--delta', type=float, nargs=2, default=[40.0, 110.0])
    parser.add_argument('--waves', type=int, default=6, help='largest frequency')
    parser.add_argument('--steps', type=int, default=200)
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--picture', type=Path, help='file for the last seed')
    parser.add_argument('--quick', action='store_true', help='two steps, one seed')
    args = parser.parse_args(arguments)
    if args.quick:
        args.steps, args.seeds = 2, 1
    errors: dict[str, list[float]] = {name: [] for name in (*ROWS, 'true graph')}
    models: dict[str, Any] = {}
    for seed in range(args.seeds):
        args.seed = seed
        val, test = (hidden.draw_batch(args, 20, 1_000 * seed + i) for i in (0, 1))
        for name, makes in ROWS.items():
            trained = [hidden.fit(name, make, args) for make in makes]
            models[name] = min(trained, key=partial(hidden.relative_error, data=val))
            errors[name].append(hidden.relative_error(models[name], test))
        errors['true graph'].append(true_error(test, args))
        for name in ('one bell', 'two bells'):
            print_precision(f'seed {seed}, {name}', models[name], test[0])
    print(f'\n{"squared error / variance":<26}{"mean":>8}{"least":>8}{"most":>8}')
    for name, own in errors.items():
        mean = sum(own) / len(own)
        print(f'{name:<26}{mean:>8.3f}{min(own):>8.3f}{max(own):>8.3f}')
    if args.picture:
        draw_responses(models, args.delta, args.picture)


if __name__ == '__main__':
    main()
