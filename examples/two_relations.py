"""Learn two relations at once, for which one learned graph is not enough.

Nodes on a circle observe the noisy value of a function, a new one in each graph, and
predict its mean at two angles to both sides. The angles are not given. A layer with one
bell, and a sum of two such layers, have to find these nodes. The two bells start wide
and are trained once. A single wide bell would stay between the relations, so it is
trained from narrow starts at four angles; validation selects one. Controls: PyG's MLP,
its GraphSAGE on the ten nearest nodes, neighbours drawn at random, and a linear fit to
the means over the true edges.

    python examples/two_relations.py
    python examples/two_relations.py --seeds 1 --picture runs/two_relations.png
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.data import Batch
from torch_geometric.nn.models import MLP, GraphSAGE
from tqdm import tqdm

from torch_geometric_gsl import (
    GumbelKNNSampler,
    LatentGraphConv,
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.datasets import HiddenRelation
from torch_geometric_gsl.transforms import SimilarityKNNGraph

GRAPHS_PER_STEP = 4
# Initial angles of the two wide bells, and of the single narrow one, in degrees.
WIDE_STARTS, NARROW_STARTS = (60, 120), (30, 65, 105, 140)
COLORS = ('#0072B2', '#D55E00')


class RelationsConv(torch.nn.Module):
    """Sum the messages of several learned graphs, one per similarity.

    The shares of the graphs are a softmax of one parameter each. Similarities with
    equal initial values would get equal gradients and stay equal: start each elsewhere.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        similarities: list[Any],
        root_weight: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(
            LatentGraphConv(
                in_channels,
                out_channels,
                similarity,
                root_weight=False,
                bias=False,
                **options,
            )
            for similarity in similarities
        )
        self.logit = torch.nn.Parameter(torch.zeros(len(similarities)))
        self.lin_root = None
        if root_weight:
            self.lin_root = torch.nn.Linear(in_channels, out_channels, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor, **inputs: Any) -> Tensor:
        messages = torch.stack([conv(x, **inputs) for conv in self.convs])
        shares = self.logit.softmax(dim=0).view(-1, 1, 1)
        out: Tensor = (shares * messages).sum(dim=0) + self.bias
        return out if self.lin_root is None else out + self.lin_root(x)


class Relations(torch.nn.Module):
    """Compare the positions of nodes, and sum the values of sampled nodes."""

    def __init__(self, *similarities: Any) -> None:
        super().__init__()
        options: dict[str, Any] = {'z_channels': 2, 'tau': 1.0, 'scale': 5.0}
        self.conv = RelationsConv(
            1, 1, list(similarities), root_weight=False, **options
        )
        for name, parameter in self.conv.named_parameters():
            # With a negative weight a bell first moves away from its relation.
            if name.endswith('lin.weight'):
                torch.nn.init.ones_(parameter)

    def samplers(self) -> list[GumbelKNNSampler]:
        """Return the sampler of each relation."""
        return [conv.sampler for conv in self.conv.convs]  # type: ignore[misc]

    def forward(self, data: Any) -> Tensor:
        out: Tensor = self.conv(data.x, batch=data.batch, z=data.pos)
        return out


class Control(torch.nn.Module):
    """A network of PyG that takes the value and the position of each node."""

    def __init__(self, model: torch.nn.Module, has_graph: bool = False) -> None:
        super().__init__()
        self.model, self.has_graph = model, has_graph

    def forward(self, data: Any) -> Tensor:
        x = torch.cat([data.x, data.pos], dim=1)
        graph = [near(data).edge_index] if self.has_graph else []
        out: Tensor = self.model(x, *graph)
        return out


def bell(degrees: float, c_scale: float | None = None) -> NeuralGaussianSimilarity:
    """Return a similarity that prefers nodes at an angle."""
    similarity = NeuralGaussianSimilarity(2, c_scale=c_scale, bias=True, centre='tanh')
    similarity.begin_at(math.cos(math.radians(degrees)))
    return similarity


def one_bell(degrees: float) -> Relations:
    return Relations(bell(degrees, c_scale=0.1))


near = SimilarityKNNGraph(10, attr='pos')
Make = Callable[[], torch.nn.Module]
ROWS: dict[str, list[Make]] = {
    'MLP, no graph': [lambda: Control(MLP([3, 32, 1], norm=None))],
    'nearest nodes': [lambda: Control(GraphSAGE(3, 32, 2, 1), has_graph=True)],
    'random neighbours': [lambda: Relations('uniform')],
    'one bell': [partial(one_bell, degrees) for degrees in NARROW_STARTS],
    'two bells': [lambda: Relations(*map(bell, WIDE_STARTS))],
}


def draw_batch(args: argparse.Namespace, num_graphs: int, seed: int) -> Any:
    options = {'delta': args.delta, 'num_waves': args.waves, 'seed': seed}
    graphs: list[Any] = list(HiddenRelation(num_graphs, **options))
    return Batch.from_data_list(graphs)


def fit(name: str, make: Make, args: argparse.Namespace) -> torch.nn.Module:
    """Train a model on graphs that it sees once."""
    seed_everything(args.seed)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    model.train()
    for step in tqdm(range(args.steps), desc=f'{name:<18}', leave=False, disable=None):
        step_seed = args.seed * args.steps + step
        data = draw_batch(args, GRAPHS_PER_STEP, step_seed * 1_000 + 2)
        optimizer.zero_grad()
        (model(data) - data.y).square().mean().backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def relative_error(model: Callable[[Any], Tensor], data: Any) -> float:
    """Compute the mean squared error over the variance of the targets."""
    return float((model(data) - data.y).square().mean() / data.y.var(correction=0))


def true_matrices(data: Any) -> list[Tensor]:
    """Return each true relation as a 0/1 matrix, one row per target."""
    matrices = torch.zeros(2, data.num_nodes, data.num_nodes)
    source, target = data.true_edge_index
    matrices[data.true_edge_type, target, source] = 1
    return list(matrices)


def edge_means(data: Any) -> Tensor:
    """Return mean values over the true edges of each kind, and a column of ones."""
    means = [
        true @ data.x / true.sum(1, keepdim=True).clamp(min=1)
        for true in true_matrices(data)
    ]
    return torch.cat([*means, torch.ones_like(data.x)], dim=1)


def true_error(test: Any, args: argparse.Namespace) -> float:
    """Compute the error of a linear fit to the means over the true edges."""
    data = draw_batch(args, 10, args.seed * 1_000 + 3)
    line = torch.linalg.lstsq(edge_means(data), data.y).solution
    return relative_error(lambda data: edge_means(data) @ line, test)


@torch.no_grad()
def print_precision(name: str, model: Relations, data: Any) -> None:
    """Print the share of true edges of each kind among the k nearest sources."""
    for index, sampler in enumerate(model.samplers(), start=1):
        (source, target), edge_weight = sampler.eval()(data.pos)
        weight = torch.zeros(data.num_nodes, data.num_nodes)
        weight[target, source] = edge_weight
        nearest = weight.topk(sampler.k, dim=1).indices
        shares = [true.gather(1, nearest).mean() for true in true_matrices(data)]
        share, other_share = map(float, shares)
        print(f'{name}, bell {index}: {share:.0%} and {other_share:.0%} are true edges')


@torch.no_grad()
def response(sampler: GumbelKNNSampler, angle: Tensor) -> Tensor:
    """Compute sampling probabilities over angles, averaged over 12 targets."""
    target = torch.arange(0.0, 360.0, 30.0).unsqueeze(1)
    degrees = torch.cat([target, target + angle], dim=1).deg2rad()
    score = [
        sampler.factor * sampler.similarity((circle[1:], circle[:1]))
        for circle in torch.stack([degrees.cos(), degrees.sin()], dim=2)
    ]
    return torch.cat(score).softmax(dim=1).mean(dim=0)


def draw_responses(models: dict[str, Any], delta: Any, path: Path) -> None:
    """Draw the learned responses over the angle, and the true relations."""
    figure = Figure(figsize=(8, 3.4), layout='constrained')
    ax, angle = figure.subplots(), torch.arange(181.0)
    for index, center in enumerate(delta):
        span, label = (center - 10, center + 10), f'true relation at {center:g}°'
        ax.axvspan(*span, color=COLORS[index], alpha=0.2, label=label)
    for index, sampler in enumerate(models['two bells'].samplers()):
        curve, label = response(sampler, angle), f'two bells, number {index + 1}'
        ax.plot(angle, curve, color=COLORS[index], label=label)
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
        val, test = (draw_batch(args, 20, 1_000 * seed + i) for i in (0, 1))
        for name, makes in ROWS.items():
            trained = [fit(name, make, args) for make in makes]
            models[name] = min(trained, key=partial(relative_error, data=val))
            errors[name].append(relative_error(models[name], test))
        errors['true graph'].append(true_error(test, args))
        for name in ('one bell', 'two bells'):
            print_precision(f'seed {seed}, {name}', models[name], test[0])
    print(f'\n{"squared error / variance":<26}{"mean":>8}{"least":>8}{"most":>8}')
    for name, variances in errors.items():
        mean = sum(variances) / len(variances)
        print(f'{name:<26}{mean:>8.3f}{min(variances):>8.3f}{max(variances):>8.3f}')
    if args.picture:
        draw_responses(models, args.delta, args.picture)


if __name__ == '__main__':
    main()
