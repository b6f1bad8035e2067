"""Learn a hidden relation between nodes, without which no target can be predicted.

Nodes on a circle observe the noisy value of a function, a new one in each graph, and
predict its mean at an angle of delta to both sides. The angle is not given: a learned
graph has to find these nodes. Controls: PyG's MLP, which sees each node alone, its
GraphSAGE on the ten nearest nodes, and neighbours drawn at random. Each
model is trained once. `--seeds` trains only the learned graph, from several seeds at
eight angles: its similarity is the default, a mixture of the cosine and a bell, which
starts wide at 90 degrees and narrows at the angle of the relation. With `--c-scale 0.1`
the bell starts narrow.

    python examples/hidden_relation.py
    python examples/hidden_relation.py --delta 60
    python examples/hidden_relation.py --seeds 10
    python examples/hidden_relation.py --seeds 10 --c-scale 0.1
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.data import Batch
from torch_geometric.nn.models import MLP, GraphSAGE
from tqdm import tqdm

import torch_geometric_gsl as gsl
from torch_geometric_gsl.datasets import HiddenRelation
from torch_geometric_gsl.transforms import SimilarityKNNGraph

GRAPHS_PER_STEP = 4
# A layer that compares positions, with its default options.
LAYER: dict[str, Any] = {
    'z_channels': 2,
    'root_weight': False,
}
# The angles of `--seeds`, and the error below which a relation counts as found.
DELTAS, FOUND = (20, 40, 60, 80, 100, 120, 140, 160), 0.2
# The nodes of the picture, in degrees, and their colours.
SHOWN = (0, 30, 60)
COLORS = ('#0072B2', '#D55E00', '#009E73')


class Network(torch.nn.Module):
    """A model that takes the value and the position of each node as features."""

    def __init__(self, model: torch.nn.Module, has_graph: bool = False) -> None:
        super().__init__()
        self.model, self.has_graph = model, has_graph

    def forward(self, data: Any) -> Tensor:
        x = torch.cat([data.x, data.pos], dim=1)
        graph = [near(data).edge_index] if self.has_graph else []
        out: Tensor = self.model(x, *graph)
        return out


class GraphLayer(torch.nn.Module):
    """One layer that compares positions, and sums the values of sampled nodes."""

    def __init__(self, conv: torch.nn.Module) -> None:
        super().__init__()
        self.conv = conv
        for name, parameter in conv.named_parameters():
            # With a negative weight the bell first moves away from the relation.
            if name.endswith('lin.weight'):
                torch.nn.init.ones_(parameter)

    def samplers(self) -> list[gsl.GumbelKNNSampler]:
        """Return the sampler of each relation."""
        modules = self.conv.modules()
        return [
            module for module in modules if isinstance(module, gsl.GumbelKNNSampler)
        ]

    def forward(self, data: Any) -> Tensor:
        out: Tensor = self.conv(data.x, batch=data.batch, z=data.pos)
        return out


@torch.no_grad()
def nearest(sampler: gsl.GumbelKNNSampler, pos: Tensor) -> Tensor:
    """Return the weights of the k nearest sources of each target, one row each."""
    graph = sampler.eval()(pos)
    weight = pos.new_zeros(pos.size(0), pos.size(0))
    weight[graph.edge_index[1], graph.edge_index[0]] = graph.edge_weight
    return weight


def one_bell(c_scale: float | None = None) -> GraphLayer:
    bell = {'c_scale': c_scale}
    return GraphLayer(gsl.LatentGraphConv(1, 1, similarity_kwargs=bell, **LAYER))


near = SimilarityKNNGraph(10, attr='pos')
Make = Callable[[], torch.nn.Module]
MODELS: dict[str, Make] = {
    'learned graph': one_bell,
    'random neighbours': lambda: GraphLayer(
        gsl.LatentGraphConv(1, 1, 'uniform', **LAYER)
    ),
    'nearest nodes': lambda: Network(GraphSAGE(3, 32, 2, 1), has_graph=True),
    'MLP, no graph': lambda: Network(MLP([3, 32, 1], norm=None)),
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


def true_matrix(data: Any) -> Tensor:
    """Return the first true relation as a 0/1 matrix, one row per target."""
    true = torch.zeros(data.num_nodes, data.num_nodes)
    source, target = data.true_edge_index[:, data.true_edge_type == 0]
    true[target, source] = 1
    return true


def draw_relations(data: Any, weight: Tensor, path: Path) -> None:
    """Draw some nodes of a graph, their true and their learned neighbours."""
    pictures = {
        'What three of the nodes need': true_matrix(data),
        'What the learned graph joins them to': weight,
    }
    position = data.pos / data.pos.norm(dim=1, keepdim=True)
    angle = torch.atan2(position[:, 1], position[:, 0]).rad2deg()
    figure = Figure(figsize=(10, 4.2), layout='constrained')
    axes = figure.subplots(1, 2)
    for ax, (title, matrix) in zip(axes, pictures.items(), strict=True):
        ax.plot(*position.t(), '.', color='#bbbbbb', label='the other nodes')
        for shown_angle, color in zip(SHOWN, COLORS, strict=True):
            node = int((angle - shown_angle).abs().argmin())
            sources = position[matrix[node] > 0]
            ends = torch.stack([position[node].expand_as(sources), sources], dim=1)
            ax.add_collection(LineCollection(ends.tolist(), colors=color, lw=0.7))
            ax.plot(*sources.t(), '.', color=color)
            label = f'a node at {shown_angle} degrees'
            ax.plot(*position[node], 'o', color=color, markersize=10, label=label)
        ax.set(title=title, aspect=1)
        ax.set_axis_off()
    axes[1].legend(loc='center left', bbox_to_anchor=(1, 0.5), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f'{path} shows three nodes, what they need, and what they found.')


def conclude(errors: dict[str, float], data: Any, weight: Tensor) -> None:
    """Print the explained variances, and the precision of the learned graph."""
    error = errors.pop('learned graph')
    control = min(errors, key=errors.__getitem__)
    if error > errors[control]:
        print(f'\nThe learned graph did not pay here: {control} is better.')
        return
    near = weight.topk(5, dim=1).indices
    share = float(true_matrix(data).gather(1, near).mean())
    explained = max(0.0, 1 - errors[control])
    print(
        f'\nThe learned graph explains {1 - error:.0%} of the variance of the targets, '
        f'the best of the others {explained:.0%};\n{share:.0%} of the nearest '
        'neighbours that it found are true ones.'
    )


def survey(args: argparse.Namespace) -> None:
    """Print the errors of the learned graph from several seeds at several angles."""
    make, lost = partial(one_bell, args.c_scale), 0
    print(f'{"angle":>5}{"median":>8}{"worst":>8}  all')
    for args.delta in DELTAS:
        test, errors = draw_batch(args, 20, 1), []
        for seed in range(args.seeds):
            args.seed = seed
            model = fit(f'{args.delta} degrees, {seed}', make, args)
            errors.append(relative_error(model, test))
        lost += sum(error >= FOUND for error in errors)
        text = ' '.join(f'{error:.3f}' for error in errors)
        middle, worst = statistics.median(errors), max(errors)
        print(f'{args.delta:>5}{middle:>8.3f}{worst:>8.3f}  {text}', flush=True)
    total = len(DELTAS) * args.seeds
    print(f'{total - lost} of {total} trainings have an error below {FOUND}')


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--delta', type=float, default=120.0, help='in degrees')
    parser.add_argument('--waves', type=int, default=4, help='largest frequency')
    parser.add_argument('--steps', type=int, default=300)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--seeds', type=int, help='number of seeds, at all angles')
    parser.add_argument('--c-scale', type=float, help='largest width of the bell')
    parser.add_argument('--out', type=Path, default=Path('runs/hidden_relation'))
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    if args.seeds:
        survey(args)
        return
    print(f'hidden relation at {args.delta:g} degrees: 200 nodes a graph')
    test = draw_batch(args, 20, 1)
    errors, learned = {}, None
    print(f'\n{"squared error / variance":<26}{"test":>8}{"seconds":>10}')
    models = MODELS | {'learned graph': partial(one_bell, args.c_scale)}
    for name, make in models.items():
        begin = time.perf_counter()
        model = fit(name, make, args)
        seconds = time.perf_counter() - begin
        errors[name] = relative_error(model, test)
        print(f'{name:<26}{errors[name]:>8.3f}{seconds:>10.1f}', flush=True)
        if name == 'learned graph':
            learned = model
    assert isinstance(learned, GraphLayer)
    data: Any = HiddenRelation(1, delta=args.delta, seed=3)[0]
    weight = nearest(learned.samplers()[0], data.pos)
    conclude(errors, data, weight)
    draw_relations(data, weight, args.out / f'{args.delta:g}.png')


if __name__ == '__main__':
    main()
