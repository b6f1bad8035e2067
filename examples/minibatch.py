"""Train in mini-batches on a table that may exceed memory.

The controls are PyG's GraphSAGE on the ten nearest rows of the batch, and its MLP.

    python examples/minibatch.py
    (ulimit -d 1500000; python examples/minibatch.py --rows 4_000_000)  # 4.1 GB

The class of a row is that of the nearest of 100 points in six hidden dimensions. Blocks
of consecutive rows are batches: shuffle your own table once. `ulimit -d` limits the
memory that a process allocates, in KiB, without the pages of files mapped for reading
(`ulimit -v` counts them). The same command resumes from the last checkpoint.
"""

import argparse
import resource
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from torch_geometric.nn.models import MLP, GraphSAGE
from tqdm import tqdm, trange

import torch_geometric_gsl as gsl
from torch_geometric_gsl.transforms import SimilarityKNNGraph

WIDTH, CLASSES, BATCH = 256, 10, 2048
ROW = np.dtype([('x', np.float32, WIDTH), ('y', np.int64)])
NET: dict[str, Any] = {'num_transition_nodes': 128, 'k': 1, 'method': 'dense'}
NET |= {'similarity': 'linear', 'scale': 10.0}


def write_table(path: Path, num_blocks: int, seed: int) -> None:
    random, temporary = np.random.default_rng(seed), path.with_suffix('.part')
    points, spread = random.normal(size=(100, 6)), random.normal(size=(6, WIDTH))
    header = {'fortran_order': False, 'shape': (num_blocks * BATCH,)}
    with temporary.open('wb') as file:
        np.lib.format.write_array_header_1_0(file, header | {'descr': ROW.descr})
        for _ in trange(num_blocks, desc='table', disable=None):
            rows, hidden = np.empty(BATCH, ROW), random.normal(size=(BATCH, 6))
            near = hidden @ points.T - (points**2).sum(axis=1) / 2
            rows['y'] = near.argmax(axis=1) % CLASSES
            rows['x'] = hidden @ spread + random.normal(size=(BATCH, WIDTH))
            rows.tofile(file)
    temporary.replace(path)


def read_blocks(path: Path, first_block: int, count: int = 1) -> list[torch.Tensor]:
    """Read rows of a table; map it anew, so that no page stays in memory."""
    rows = np.load(path, mmap_mode='r')[
        first_block * BATCH : (first_block + count) * BATCH
    ]
    return [torch.from_numpy(rows[name].copy()) for name in ('x', 'y')]


def outputs(model: Any, x: Tensor) -> Tensor:
    graph: Any = SimilarityKNNGraph(10)(Data(x=x)) if name == 'near' else None
    out: Tensor = model(x) if graph is None else model(x, graph.edge_index)
    return out


def train(model: Any, order: Any, table: Path, checkpoint: Path) -> None:
    """Train on blocks in this order, from the last checkpoint if there is one."""
    optimizer, done = torch.optim.Adam(model.parameters(), lr=0.005), 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved['model'])
        optimizer.load_state_dict(saved['optimizer'])
        done = saved['done']
    loader = DataLoader(order[done:], None, collate_fn=partial(read_blocks, table))
    for x, y in tqdm(loader, checkpoint.stem, len(order), initial=done, disable=None):
        torch.manual_seed(done)  # The same noise in a resumed run.
        optimizer.zero_grad()
        cross_entropy(outputs(model.train(), x), y).backward()
        optimizer.step()
        done += 1
        if done % 100 == 0 or done == len(order):
            state = {'model': model.state_dict(), 'optimizer': optimizer.state_dict()}
            torch.save(
                state | {'done': done}, temporary := checkpoint.with_suffix('.part')
            )
            temporary.replace(checkpoint)


parser = argparse.ArgumentParser()
for option, default in {'rows': 200_000, 'epochs': 1, 'seed': 0}.items():
    parser.add_argument(f'--{option}', type=int, default=default)
args = parser.parse_args()
if args.rows < 16 * BATCH:
    parser.error(f"'--rows' must be at least {16 * BATCH} (got {args.rows})")
table = Path(f'runs/minibatch/{args.rows}_{args.seed}/table.npy')
table.parent.mkdir(parents=True, exist_ok=True)
if not table.exists():
    write_table(table, args.rows // BATCH, args.seed)
random, count = np.random.default_rng(args.seed), args.rows // BATCH - 8
order = np.concatenate([random.permutation(count) for _ in range(args.epochs)])
x, y = read_blocks(table, count, 8)
for name in ('free', 'anchors', 'near', 'mlp'):
    torch.manual_seed(args.seed)
    sizes, begin = (WIDTH, 64, 2, CLASSES), time.perf_counter()
    model: Any
    if name == 'mlp':
        model = MLP([WIDTH, 64, CLASSES], act='elu', norm=None)
    elif name == 'near':
        model = GraphSAGE(*sizes, act='elu')
    else:
        model = gsl.GSLNet.paper(*sizes, dropout=0.0, transition=name, **NET)
    if name == 'anchors':
        model.choose_anchors(read_blocks(table, 0)[0])
    train(model, order.tolist(), table, table.with_name(f'{name}.pt'))
    seconds = time.perf_counter() - begin
    with torch.no_grad():
        out = torch.cat([outputs(model.eval(), rows) for rows in x.split(BATCH)])
    score = float((out.argmax(dim=1) == y).float().mean())
    print(f'{name:<8}{score:.1%} of rows held back, {seconds:.0f} s')
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(f'table {table.stat().st_size / 2**30:.2f} GiB, peak {peak:.2f} GiB')
