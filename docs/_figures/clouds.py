"""Draw clouds of points and a learned metric into ``paper/docs/_figures/``."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor

from torch_geometric_gsl import KNNEdgeConv, knn_graph

FOLDER = Path(__file__).resolve().parents[2] / 'paper' / 'docs' / '_figures'
# The palette of Okabe and Ito, which colour-blind readers can distinguish.
COLOURS = ('#0072B2', '#E69F00')
GREY, WRONG = '#9A9A9A', '#C3006B'
K = 8


def spirals(num: int, seed: int, noise: float) -> tuple[Tensor, Tensor]:
    """Generate two spirals in two columns, noise in two more, and the classes."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(num) % 2
    turn = 0.5 + 2.5 * torch.rand(num, generator=generator).sqrt()
    angle = math.pi * (turn + y)
    shape = turn.unsqueeze(1) * torch.stack([angle.cos(), angle.sin()], dim=1)
    noises = noise * torch.randn(num, 2, generator=generator)
    rough = 0.08 * torch.randn(num, 2, generator=generator)
    return torch.cat([shape + rough, noises], dim=1), y


def train(x: Tensor, y: Tensor, steps: int = 300) -> Tensor:
    """Learn a linear map after which neighbours predict the class of a point."""
    torch.manual_seed(0)
    space = torch.nn.Linear(4, 4, bias=False)
    torch.nn.init.eye_(space.weight)
    # The message of a neighbour is its class.
    copy = torch.nn.Linear(2, 1, bias=False).requires_grad_(False)
    conv = KNNEdgeConv(copy, K, 'mean', loop=False, tau=1.0)
    torch.nn.init.ones_(copy.weight)
    optimizer = torch.optim.Adam(space.parameters(), lr=0.03)
    label = y.float().unsqueeze(1)
    for _ in range(steps):
        optimizer.zero_grad()
        (conv(label, z=space(x)) - label).square().mean().backward()
        optimizer.step()
    return space.weight.detach()


def share_within(edges: Tensor, y: Tensor) -> float:
    """Compute the share of edges that join points of one class."""
    return float((y[edges[0]] == y[edges[1]]).float().mean())


def draw(axes: Axes, pos: Tensor, y: Tensor, edges: Tensor, title: str) -> None:
    """Draw points by class, and their edges; highlight those between classes."""
    is_wrong = y[edges[0]] != y[edges[1]]
    for mask, colour, width in ((~is_wrong, GREY, 0.5), (is_wrong, WRONG, 0.6)):
        lines = pos[edges[:, mask].T].numpy()
        axes.add_collection(LineCollection(lines, colors=colour, linewidths=width))
    for label, (colour, marker) in enumerate(zip(COLOURS, 'o^', strict=True)):
        points = pos[y == label].T.numpy()
        axes.scatter(*points, s=11, color=colour, marker=marker, zorder=2)
    axes.set(aspect='equal', xticks=[], yticks=[])
    axes.set_title(title, fontsize=11)
    axes.margins(0.04)


def two_clouds() -> tuple[Tensor, Tensor, Tensor]:
    """Generate points of a ring and a crossing bow, their cloud numbers, and edges."""
    generator = torch.Generator().manual_seed(0)
    angle = 2 * math.pi * torch.rand(2, 60, generator=generator)
    ring = torch.stack([angle[0].cos(), angle[0].sin()], dim=1)
    bow = torch.stack([angle[1] / math.pi - 1, 0.6 * angle[1].sin()], dim=1)
    pos = torch.cat([ring, bow + torch.tensor([0.8, 0.0])])
    pos += 0.06 * torch.randn(120, 2, generator=generator)
    batch = torch.arange(2).repeat_interleave(60)
    return pos, batch, knn_graph(pos, 4, batch)


def learn(seed: int, noise: float = 3.0) -> tuple[dict[str, float], tuple[Tensor, ...]]:
    """Learn from some points; return graphs of others, and shares within a class."""
    weight = train(*spirals(400, 2 * seed, noise))
    x, y = spirals(400, 2 * seed + 1, noise)
    plain, learned, shape = (knn_graph(z, K) for z in (x, x @ weight.T, x[:, :2]))
    shares = {
        'raw rows': share_within(plain, y),
        'learned rows': share_within(learned, y),
        'without the noise': share_within(shape, y),
    }
    return shares, (x, y, plain, learned)


def main() -> None:
    shares, (x, y, *graphs) = learn(0)
    figure = Figure(figsize=(12, 4.3), layout='constrained')
    left, *panels = figure.subplots(1, 3)
    draw(left, *two_clouds(), 'two clouds of one batch')
    for axes, edges, name in zip(panels, graphs, shares, strict=False):
        title = f'{name}: {shares[name]:.0%} of the edges within a class'
        draw(axes, x[:, :2], y, edges, title)
    FOLDER.mkdir(exist_ok=True)
    figure.savefig(FOLDER / 'metric.png', dpi=75, pil_kwargs={'optimize': True})
    print('edges within a class')
    for noise, seed in [*((3.0, seed) for seed in range(5)), (10.0, 0)]:
        shares, _ = learn(seed, noise)
        words = ', '.join(f'{name} {share:.1%}' for name, share in shares.items())
        print(f'noise of {noise:g}: {words}')


if __name__ == '__main__':
    main()
