"""Choose the defaults of GSLNet on validation nodes.

    python benchmark/defaults.py defaults.json [--seeds 3] [--only wine digits]
    python benchmark/defaults.py defaults.json --table

Each candidate trains with the same recipe on each data set and split. Finished runs
are stored in the file; a restarted command continues with the missing ones. The table
has the mean validation score of each candidate, by which the defaults are chosen, its
test score, and two controls without a learned graph.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from record import write_json
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.transforms import RandomNodeSplit
from tqdm import tqdm

import torch_geometric_gsl as gsl
from torch_geometric_gsl.datasets import HiddenRelation, load_dataset

DATASETS = ('wine', 'breast_cancer', 'digits', 'Chameleon', 'CiteSeer', '20News')
#: Angles of the hidden relations, and their number of training steps.
ANGLES = {'relation 40': 40, 'relation 110': 110}
STEPS = 150
#: With this suffix layers have no root weight: they use only messages of neighbours.
NO_ROOT = ', no root'
UNITS = [*DATASETS, *(name + NO_ROOT for name in DATASETS[:2]), *ANGLES]
HIDDEN, EPOCHS, PATIENCE = 64, 200, 40
#: The published model.
PAPER: dict[str, Any] = {
    'similarity': 'neural_gaussian',
    'tau': 0.25,
    'scale': 1.0,
    'train_scale': False,
    'loop': True,
    'z_channels': None,
    'act': 'elu',
    'eval_k': 'all',
}
SHARP: dict[str, Any] = {
    'similarity': 'linear',
    'tau': 1.0,
    'scale': 10.0,
    'train_scale': True,
    'loop': False,
    'z_channels': None,
    'act': 'relu',
    'eval_k': 32,
}
INPUT = SHARP | {'z_channels': -1}
#: A wide bell whose centre moves from `begin` to any angle. From 0, with a temperature
#: of 0.5 and evaluation over all candidates, it is the default.
BELL = {
    'similarity': 'neural_gaussian',
    'similarity_kwargs': {'bias': True, 'centre': 'tanh'},
}
CANDIDATES: dict[str, dict[str, Any]] = {
    'paper': PAPER,
    'paper, no loops': PAPER | {'loop': False},
    'cosine of projections': SHARP,
    'cosine of features': INPUT,
    'with scale 5': INPUT | {'scale': 5.0},
    'with scale 20': INPUT | {'scale': 20.0},
    'with tau 0.25': INPUT | {'tau': 0.25},
    'over all': INPUT | {'eval_k': 'all'},
    'bell, from 0.9': INPUT | BELL | {'begin': 0.9},
    'bell, from 0.5': INPUT | BELL | {'begin': 0.5},
    'bell, from 0': INPUT | BELL,
    'bell, tau 0.25': INPUT | BELL | {'tau': 0.25},
    'bell, tau 0.5': INPUT | BELL | {'tau': 0.5},
    'bell, tau 0.5, over 96': INPUT | BELL | {'tau': 0.5, 'eval_k': 96},
    'bell, tau 0.5, over all': INPUT | BELL | {'tau': 0.5, 'eval_k': 'all'},
    'bell of projections, tau 0.5, over all': SHARP
    | BELL
    | {'tau': 0.5, 'eval_k': 'all'},
}
CONTROLS = 'MLP', 'nearest rows, GCN'


def build(name: str, sizes: tuple[int, int, int, int], root: bool) -> torch.nn.Module:
    if name == 'MLP':
        return gsl.MLPClassifier(*sizes)
    if name == 'nearest rows, GCN':
        return gsl.KNNGCN(*sizes, root_weight=root, cached=True)
    options = {k: v for k, v in CANDIDATES[name].items() if k != 'begin'}
    return begin(name, gsl.GSLNet(*sizes, root_weight=root, **options))


def begin(name: str, model: torch.nn.Module) -> torch.nn.Module:
    """Initialise the centres of all bells at the candidate's `begin`."""
    for part in model.modules():
        if isinstance(part, gsl.NeuralGaussianSimilarity) and part.bias_b is not None:
            part.begin_at(CANDIDATES[name].get('begin', 0.0))
    return model


def fit_relation(name: str, delta: int, seed: int) -> dict[str, float]:
    """Train one layer and return the fraction of the variance that it explains."""
    seed_everything(seed)
    options = CANDIDATES.get(name, {}) | {'z_channels': 2}
    options = {k: v for k, v in options.items() if k not in ('begin', 'act')}
    model: Any = (
        torch.nn.Sequential(
            torch.nn.Linear(3, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
        )
        if name in CONTROLS
        else begin(name, gsl.LatentGraphConv(1, 1, **options))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)

    def answer(data: Any) -> Tensor:
        is_control = name in CONTROLS
        x = torch.cat([data.x, data.pos], dim=1) if is_control else data.x
        out: Tensor = model(x) if is_control else model(x, z=data.pos)
        return out

    def explained(seed: int) -> float:
        graphs: list[Any] = list(HiddenRelation(20, delta=delta, seed=seed))
        with torch.no_grad():
            wrong = sum((answer(g) - g.y).square().mean() for g in graphs)
        return 1 - float(wrong / sum(g.y.var(correction=0) for g in graphs))

    for data in HiddenRelation(STEPS, delta=delta, seed=100 * seed + 1):
        optimizer.zero_grad()
        (answer(data) - data.y).square().mean().backward()
        optimizer.step()
    model.eval()
    return {'val': explained(2), 'test': explained(3)}


def fit(unit: str, name: str, seed: int) -> dict[str, float]:
    """Train a model and return the scores of its best epoch on validation nodes."""
    if unit in ANGLES:
        return fit_relation(name, ANGLES[unit], seed)
    data, num_classes = load(unit.removesuffix(NO_ROOT), seed)
    seed_everything(seed)
    sizes = data.num_features, HIDDEN, 2, num_classes
    model: Any = build(name, sizes, not unit.endswith(NO_ROOT))
    with torch.no_grad():
        model(data.x)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=5e-4)
    best, last = {'val': -1.0, 'loss': float('inf'), 'test': 0.0, 'epoch': 0}, 0
    for epoch in range(EPOCHS):
        optimizer.zero_grad()
        model.train().loss(data.x, data.y, data.train_mask).backward()
        optimizer.step()
        with torch.no_grad():
            out = model.eval()(data.x)
        val = accuracy(out, data.y, data.val_mask)
        loss = float(
            torch.nn.functional.cross_entropy(out[data.val_mask], data.y[data.val_mask])
        )
        if (val, -loss) > (best['val'], -best['loss']):
            test = accuracy(out, data.y, data.test_mask)
            best = {'val': val, 'loss': loss, 'test': test, 'epoch': epoch}
            last = epoch
        if epoch - last >= PATIENCE:
            break
    return best


def accuracy(out: Tensor, y: Tensor, mask: Tensor) -> float:
    return float((out.argmax(dim=1) == y)[mask].double().mean())


def load(name: str, seed: int) -> tuple[Any, int]:
    """Load a data set with a random split of 50, 25 and 25 %."""
    data: Any = load_dataset(name)
    part = data.num_nodes // 4
    seed_everything(1000 + seed)
    data = RandomNodeSplit(num_val=part, num_test=part)(data)
    return data, int(data.y.max()) + 1


def run(path: Path, datasets: list[str], names: list[str], seeds: int) -> None:
    found = json.loads(path.read_text()) if path.exists() else {}
    units = [(d, s, n) for s in range(seeds) for d in datasets for n in names]
    units = [unit for unit in units if '|'.join(map(str, unit)) not in found]
    for dataset, seed, name in tqdm(units):
        found[f'{dataset}|{seed}|{name}'] = fit(dataset, name, seed)
        write_json(path, found)


def table(path: Path) -> None:
    """Print validation and test means over seeds, and means over data sets."""
    found = json.loads(path.read_text())
    keys = [key.split('|') for key in found]
    datasets = list(dict.fromkeys(key[0] for key in keys))
    print(','.join(['model', *datasets, 'mean']))
    for name in [*CONTROLS, *CANDIDATES]:
        row, means = [name], []
        for dataset in datasets:
            runs = [found['|'.join(key)] for key in keys if key[::2] == [dataset, name]]
            if runs:
                val, test = (
                    statistics.mean(run[what] for run in runs)
                    for what in ('val', 'test')
                )
                means.append(val)
            row.append(f'{100 * val:.1f} ({100 * test:.1f})' if runs else '')
        whole = len(means) == len(datasets)
        row.append(f'{100 * statistics.mean(means):.2f}' if whole else '')
        print(','.join(f'"{cell}"' if ',' in cell else cell for cell in row))


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('results', type=Path)
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--only', nargs='+', choices=UNITS, default=UNITS)
    names = [*CONTROLS, *CANDIDATES]
    parser.add_argument('--models', nargs='+', choices=names, default=names)
    parser.add_argument('--table', action='store_true')
    args = parser.parse_args()
    if not args.table:
        run(args.results, args.only, args.models, args.seeds)
    table(args.results)
