"""Learns a graph for data whose graph is withheld, and trains a GNN on it.

Beside the model stand its controls on the same splits: an MLP, which sees no graph,
and a GCN with a root weight on a graph of nearest neighbours (cosine). A learned
graph is worth its price where it beats both.

    python examples/gausim.py
    python examples/gausim.py --dataset CiteSeer --seeds 5 --similarity gaussian
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
import time
from pathlib import Path

import torch
import torch_geometric
from torch_geometric.data import Data
from tqdm import tqdm

import torch_geometric_gsl as gsl
from torch_geometric_gsl.datasets import DATASETS, load_dataset, paper_split
from torch_geometric_gsl.diagnostics import describe_graph, describe_model
from torch_geometric_gsl.visualization import (
    plot_gaussian_parameters,
    plot_graph,
    plot_similarity_curves,
)

NAMES = {
    'linear': 'LinSim',
    'difference': 'DiffSim',
    'gaussian': 'GauSim',
    'neural_gaussian': 'NeuralGauSim',
    'heat_kernel': 'HeatKernel',
    'cosine': 'Cosine',
    'uniform': 'Uniform',
}


def build(model: str, data: Data, args: argparse.Namespace) -> gsl.NodeClassifier:
    sizes = {
        'in_channels': data.num_features,
        'hidden_channels': args.hidden,
        'num_layers': 2,
        'out_channels': int(data.y.max()) + 1,
    }
    if model == 'mlp':
        return gsl.MLPClassifier(**sizes)
    if model == 'knn':
        return gsl.KNNGCN(**sizes, k=args.k, root_weight=True, cached=True)
    if model == 'transition':
        sizes |= {
            'num_transition_nodes': args.transition_nodes,
            'num_nodes': data.num_nodes,
        }
    return gsl.GSLNet(
        **sizes,
        similarity=args.similarity,
        k=args.k,
        tau=args.tau,
        scale=args.scale,
        root_weight=not args.no_root_weight,
    )


def train(
    name: str, model: gsl.NodeClassifier, data: Data, args: argparse.Namespace
) -> dict[str, float]:
    """Trains one model; the epoch is selected by the validation nodes alone."""
    optimizer = torch.optim.Adam(
        model.parameters(), lr=args.lr, weight_decay=args.weight_decay
    )
    best = {'val': -1.0}
    best_state = {}
    start = time.perf_counter()
    bar = tqdm(range(args.epochs), desc=f'{name:<16}', leave=False)
    for epoch in bar:
        model.train()
        optimizer.zero_grad()
        loss = model.loss(data.x, data.y, data.train_mask)
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            hit = (model(data.x).argmax(dim=-1) == data.y).double()
        val = float(hit[data.val_mask].mean())
        if val > best['val']:
            test = float(hit[data.test_mask].mean())
            best = {'val': val, 'test': test, 'epoch': epoch}
            best_state = {k: v.clone() for k, v in model.state_dict().items()}
        bar.set_postfix(loss=f'{loss.item():.3f}', val=f'{100 * best["val"]:.1f}')
    model.load_state_dict(best_state)
    return {**best, 'seconds': time.perf_counter() - start}


def mean_std(values: list[float]) -> str:
    text = f'{100 * statistics.mean(values):5.1f}'
    return (
        f'{text} ± {100 * statistics.stdev(values):3.1f}' if len(values) > 1 else text
    )


def show_model(model: gsl.GSLNet, data: Data, folder: Path) -> None:
    """Describes and draws what a model learned."""
    model.train()
    model.zero_grad()
    # For the norms of the gradients.
    model.loss(data.x, data.y, data.train_mask).backward()
    summary = describe_model(model, data.x)
    print(f'\nThe model\n{summary}\n')
    pictures = {}
    if all(layer.b is not None for layer in summary.layers):
        layers = enumerate(summary.layers, start=1)
        curves = {f'layer {number}': layer for number, layer in layers}
        pictures['similarity.png'] = plot_similarity_curves(curves)
        pictures['parameters.png'] = plot_gaussian_parameters(summary)
    if model.num_nodes is None:
        model.eval()
        with torch.no_grad():
            graph = model.graphs(data.x)[0]
        print(f'The graph of the first layer\n{describe_graph(graph, y=data.y)}\n')
        pictures['graph.png'] = plot_graph(graph, y=data.y)
    for name, figure in pictures.items():
        figure.savefig(folder / name, dpi=150)
        print('wrote', folder / name)


def save_results(results: dict, args: argparse.Namespace, folder: Path) -> Path:
    record = {
        'command': shlex.join([Path(sys.executable).name, *sys.argv]),
        'arguments': {k: str(v) for k, v in vars(args).items()},
        'versions': {
            'python': platform.python_version(),
            'torch': torch.__version__,
            'torch_geometric': torch_geometric.__version__,
            'torch_geometric_gsl': gsl.__version__,
        },
        'results': results,
    }
    path = folder / 'results.json'
    draft = path.with_suffix('.tmp')
    draft.write_text(json.dumps(record, indent=2) + '\n')
    os.replace(draft, path)
    return path


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f'must be at least 1 (got {number})')
    return number


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--dataset', default='digits', choices=DATASETS)
    parser.add_argument('--similarity', default='neural_gaussian', choices=NAMES)
    parser.add_argument(
        '--models',
        nargs='+',
        default=['full', 'transition', 'mlp', 'knn'],
        choices=['full', 'transition', 'mlp', 'knn'],
        help='evaluating the full graph exactly costs O(n^2) time',
    )
    parser.add_argument('--transition-nodes', type=positive, default=500)
    parser.add_argument('--k', type=positive, default=5)
    parser.add_argument('--tau', type=float, default=0.25)
    parser.add_argument('--scale', type=float, default=1.0)
    parser.add_argument('--no-root-weight', action='store_true')
    parser.add_argument('--hidden', type=positive, default=32)
    parser.add_argument('--lr', type=float, default=0.01)
    parser.add_argument('--weight-decay', type=float, default=0.0)
    parser.add_argument('--epochs', type=positive, default=100)
    parser.add_argument('--seeds', type=positive, default=3, help='number of seeds')
    parser.add_argument('--out', type=Path, default=Path('runs/gausim'))
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    args.models = list(dict.fromkeys(args.models))
    name = NAMES[args.similarity]
    titles = {'full': name, 'transition': f'{name}-T', 'mlp': 'MLP', 'knn': 'kNN-GCN'}
    data = load_dataset(args.dataset)
    folder = args.out / args.dataset
    folder.mkdir(parents=True, exist_ok=True)
    print(f'{args.dataset}: {data.num_nodes:,} nodes, {data.num_features:,} features')

    results: dict[str, list[dict[str, float]]] = {titles[m]: [] for m in args.models}
    learned = None
    learned_name = 'full' if 'full' in args.models else 'transition'
    for seed in range(args.seeds):
        data = paper_split(data, seed=seed)
        for model_name in args.models:
            torch_geometric.seed_everything(seed)
            model = build(model_name, data, args)
            title = titles[model_name]
            results[title].append(train(f'{title} ({seed})', model, data, args))
            if model_name == learned_name:
                learned = model

    print(f'\n{"accuracy, %":<18}{"validation":>14}{"test":>14}{"s a run":>10}')
    for title, runs in results.items():
        val, test = (mean_std([run[key] for run in runs]) for key in ('val', 'test'))
        seconds = statistics.mean(run['seconds'] for run in runs)
        print(f'{title:<18}{val:>14}{test:>14}{seconds:>10.1f}')
    print(f'mean ± sample standard deviation over {args.seeds} seed(s)\n')
    print('wrote', save_results(results, args, folder))
    if learned is not None:
        show_model(learned, data, folder)


if __name__ == '__main__':
    main()
