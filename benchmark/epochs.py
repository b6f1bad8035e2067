"""Time training epochs of a default `GSLNet`.

    python benchmark/epochs.py
    python benchmark/epochs.py --nodes 100000 --epochs 10

An epoch is the forward and backward pass of all nodes, and a step of Adam, of a net of
two layers with 32 hidden units. Nodes are the rows of `workloads.py` around as many
centres as the square root of their number; the label of a node is the largest of ten
random projections. Seconds are processor time on one thread. The first epoch, with
what later ones reuse, counts in the sum only.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import torch
from record import at_least
from torch.nn.functional import cross_entropy
from workloads import CLASSES, WIDTH, load_embeddings

from torch_geometric_gsl import GSLNet

HIDDEN, LAYERS, RATE = 32, 2, 0.01


def time_epochs(num_nodes: int, num_epochs: int, seed: int = 0) -> list[float]:
    """Train a net, and return the seconds of each epoch."""
    x, _ = load_embeddings(f'clustered-{num_nodes}', seed)
    torch.manual_seed(seed)
    y = (x @ torch.randn(WIDTH, CLASSES)).argmax(dim=1)
    model = GSLNet(WIDTH, HIDDEN, LAYERS, CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    seconds = []
    for _ in range(num_epochs):
        begin = time.process_time()
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        seconds.append(time.process_time() - begin)
    return seconds


def main(argv: Sequence[str] | None = None) -> None:
    """Read the options, and print a line for each number of nodes."""
    parser = argparse.ArgumentParser(description='Time training epochs of a net.')
    sizes = [1_000, 10_000, 100_000]
    parser.add_argument('--nodes', type=at_least(1_000), nargs='+', default=sizes)
    parser.add_argument('--epochs', type=at_least(2), default=100)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    for num_nodes in args.nodes:
        seconds = time_epochs(num_nodes, args.epochs)
        print(
            f'{num_nodes:,} nodes: {statistics.median(seconds[1:]):.2g} s an epoch, '
            f'{sum(seconds):.3g} s for {args.epochs}',
            flush=True,
        )


if __name__ == '__main__':
    main()
