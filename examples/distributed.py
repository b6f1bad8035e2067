"""Train in several processes, each of which holds a block of the rows.

    torchrun --nproc-per-node=2 examples/distributed.py --check
    torchrun --nproc-per-node=2 --max-restarts=1 examples/distributed.py \
        --checkpoint runs/distributed --die-at 12

The first process then trains the controls on all rows: PyG's GraphSAGE on the ten
nearest rows, and its MLP. Without torchrun there is one process. `--check` compares
loss, gradients, graphs and evaluation with those of one process that holds all rows,
and fails if they differ. `--die-at` kills a process once: torchrun restarts all
processes, and they resume from their last checkpoint.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.nn.models import MLP, GraphSAGE
from tqdm import tqdm

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.distributed import (
    RowShard,
    load_checkpoint,
    save_checkpoint,
    start,
)
from torch_geometric_gsl.transforms import SimilarityKNNGraph

CLASSES, HIDDEN, EVERY = 5, 32, 5
TOLERANCE = 1e-9  # In double precision, relative to the largest value.


def make_table(nodes: int, features: int) -> tuple[Tensor, Tensor, Tensor]:
    """Generate the rows of all ranks, their classes, and a mask of labelled rows."""
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(CLASSES, features, generator=generator)
    y = torch.randint(CLASSES, (nodes,), generator=generator)
    x = centre[y] + 2 * torch.randn(nodes, features, generator=generator)
    return x, y, torch.rand(nodes, generator=generator) < 0.1


def train_step(model: GSLNet, rows: list[Tensor], shard: RowShard | None) -> Tensor:
    """Compute the loss, and the gradients over all rows."""
    model.train().zero_grad()
    loss = model.loss(*rows, shard=shard)
    loss.backward()
    if shard is not None:
        shard.sum_gradients(model)
    return loss.detach()


def all_results(model: GSLNet, rows: list[Tensor], shard: RowShard | None) -> Any:
    """Compute the loss, gradients, graphs and outputs of all rows."""
    torch.manual_seed(1)
    loss = train_step(model, rows, shard)
    graphs = model.graphs(rows[0], shard=shard)
    out: Any = model.eval()(rows[0], shard=shard)
    if shard is not None:
        graphs, out = list(map(shard.gather_graph, graphs)), shard.gather(out)
    parameters = model.named_parameters()
    gradients = {name: p.grad.clone() for name, p in parameters if p.grad is not None}
    return loss, gradients, graphs, out.detach()


def difference(a: Tensor, b: Tensor) -> float:
    """Compute the largest difference, relative to the largest value."""
    largest = b.abs().max().clamp(min=torch.finfo(b.dtype).tiny)
    return float(((a - b).abs().max() / largest).detach())


def check(
    model: GSLNet, rows: list[Tensor], table: list[Tensor], shard: RowShard
) -> bool:
    """Compare with one process; print the largest differences on the first rank."""
    loss, gradients, graphs, out = all_results(model, rows, shard)
    is_equal = True
    if shard.rank == 0:
        plain = all_results(model, table, None)
        differences = {
            'loss': difference(loss, plain[0]),
            'outputs': difference(out, plain[3]),
        }
        for name, gradient in gradients.items():
            differences[f'gradient of {name}'] = difference(gradient, plain[1][name])
        for layer, (graph, expected) in enumerate(zip(graphs, plain[2], strict=True)):
            is_equal &= torch.equal(graph.edge_index, expected.edge_index)
            print(f'edges of layer {layer}: {graph}, equal: {is_equal}')
            if is_equal:
                gap = difference(graph.edge_weight, expected.edge_weight)
                differences[f'weights of layer {layer}'] = gap
        for name, value in differences.items():
            print(f'{name}: {value:.1e}')
        is_equal &= max(differences.values()) <= TOLERANCE
        print(f'tolerance {TOLERANCE:.0e}: {"passed" if is_equal else "FAILED"}')
    agreed = shard.sum(torch.tensor(float(is_equal), device=out.device))
    return float(agreed) == shard.world_size


def print_controls(steps: int, x: Tensor, y: Tensor, labelled: Tensor) -> None:
    """Train two models without a learned graph on all rows, and print accuracies."""
    near: Any = SimilarityKNNGraph(10)(Data(x=x))
    sage = GraphSAGE(x.size(1), HIDDEN, 2, CLASSES, dropout=0.5)
    mlp = MLP([x.size(1), HIDDEN, CLASSES], dropout=0.5, norm=None)
    models: Any = {'nearest rows': [sage, near.edge_index], 'no graph': [mlp]}
    for name, (model, *graph) in models.items():
        optimizer = torch.optim.Adam(model.to(x.device).parameters(), lr=0.01)
        for _ in range(steps):
            optimizer.zero_grad()
            cross_entropy(model.train()(x, *graph)[labelled], y[labelled]).backward()
            optimizer.step()
        with torch.no_grad():
            hit = model.eval()(x, *graph).argmax(dim=1) == y
        print(f'{name}: accuracy {hit[~labelled].float().mean():.1%}')


parser = argparse.ArgumentParser()
for option, default in {'nodes': 2000, 'features': 16, 'epochs': 20}.items():
    parser.add_argument(f'--{option}', type=int, default=default)
parser.add_argument('--backend', choices=['gloo', 'nccl'])
parser.add_argument('--checkpoint', type=Path, help='folder of the checkpoint')
parser.add_argument('--die-at', type=int, help='step at which the last rank dies')
parser.add_argument('--check', action='store_true')
args = parser.parse_args()

if args.check:
    torch.set_default_dtype(torch.double)
device = start(args.backend)
shard = RowShard.even(args.nodes)
rank, world = shard.rank, shard.world_size
# With a large table each process would read its own rows only.
table = [column.to(device) for column in make_table(args.nodes, args.features)]
rows = [shard.split(column) for column in table]
torch.manual_seed(0)  # The same parameters and the same noise on all ranks.
model = GSLNet(args.features, HIDDEN, 2, CLASSES, scale=5.0).to(device)
is_equal = check(model, rows, table, shard) if args.check else True

optimizer, done, path = torch.optim.Adam(model.parameters(), lr=0.01), 0, None
if args.checkpoint is not None:
    args.checkpoint.mkdir(parents=True, exist_ok=True)
    path = args.checkpoint / 'last.pt'
    done = load_checkpoint(path, model, optimizer, missing_ok=True)
is_first_life = os.environ.get('TORCHELASTIC_RESTART_COUNT', '0') == '0'
seconds, loss = [], None
steps = range(done, args.epochs)
hidden = None if rank == 0 else True  # None: without a terminal.
for step in tqdm(steps, 'training', args.epochs, initial=done, disable=hidden):
    if step == args.die_at and is_first_life and rank == world - 1:
        os._exit(1)
    begin = time.perf_counter()
    loss = train_step(model, rows, shard)
    optimizer.step()
    seconds.append(time.perf_counter() - begin)
    if path is not None and ((step + 1) % EVERY == 0 or step + 1 == args.epochs):
        save_checkpoint(path, model, optimizer, step + 1)
accuracy = model.score(rows[0], rows[1], ~rows[2], shard=shard)['accuracy']
if rank == 0:
    summary = (
        f'steps {done}..{args.epochs}, loss {loss:.4f}' if steps else 'nothing to do'
    )
    print(f'{world} processes, {args.nodes} nodes, {summary}, accuracy {accuracy:.1%}')
    if len(seconds) > 1:  # The first step compiles and computes score bounds.
        mean = sum(seconds[1:]) / len(seconds[1:])
        print(f'first step {seconds[0]:.3f} s, then {mean:.3f} s a step')
    print_controls(args.epochs, *table)
if dist.is_initialized():
    dist.destroy_process_group()
sys.exit(0 if is_equal else 1)
