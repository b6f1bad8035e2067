"""Learn a graph for data whose graph is withheld, and train a GNN on it.

Controls on the same splits, both models of PyG: an MLP, which sees no graph, and
GraphSAGE on the ten nearest rows (cosine). A learned graph is worth its cost where it
beats both.

    python examples/gausim.py
    python examples/gausim.py --dataset CiteSeer --seeds 5 --similarity gaussian
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import cross_entropy
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid
from torch_geometric.nn.models import MLP, GraphSAGE
from torch_geometric.transforms import NormalizeFeatures, RandomNodeSplit
from tqdm import tqdm

import torch_geometric_gsl as gsl
from torch_geometric_gsl.diagnostics import describe_graph
from torch_geometric_gsl.transforms import FreezeLatentGraph, SimilarityKNNGraph
from torch_geometric_gsl.visualization import explore, plot_graph

SIMILARITIES = (
    'linear',
    'difference',
    'gaussian',
    'neural_gaussian',
    'heat_kernel',
    'cosine',
    'uniform',
)
TABLES = {
    'digits': load_digits,
    'wine': load_wine,
    'breast_cancer': load_breast_cancer,
}
CITATIONS = 'Cora', 'CiteSeer', 'PubMed'  # PyG downloads them to data/.
MODELS = {
    'full': 'learned graph',
    'transition': 'learned, -T',
    'mlp': 'MLP, no graph',
    'knn': 'nearest rows',
}


def load(dataset: str) -> Data:
    """Return features and labels, without the edges if there are any."""
    if dataset in CITATIONS:
        data: Any = Planetoid('data', dataset, transform=NormalizeFeatures())[0]
        return Data(x=data.x.to_sparse_csr(), y=data.y)
    x, y = TABLES[dataset](return_X_y=True)
    x = StandardScaler().fit_transform(x)
    return Data(x=torch.from_numpy(x).float(), y=torch.from_numpy(y))


def build(name: str, data: Data, args: argparse.Namespace) -> list[Any]:
    """Return an untrained model, and its inputs."""
    sizes = {
        'in_channels': data.num_features,
        'hidden_channels': 32,
        'num_layers': 2,
        'out_channels': int(data.y.max()) + 1,
    }
    x: Any = data.x
    if name == 'mlp':  # Layers of PyG take dense features.
        return [MLP(**sizes, dropout=0.5, act='elu', norm=None), x.to_dense()]
    if name == 'knn':
        near: Any = SimilarityKNNGraph(10)(Data(x=x.to_dense()))
        return [GraphSAGE(**sizes, dropout=0.5, act='elu'), near.x, near.edge_index]
    if name == 'transition':
        sizes |= {'num_transition_nodes': 500, 'num_nodes': data.num_nodes}
    options = {'k': args.k, 'tau': args.tau, 'scale': args.scale}
    options['root_weight'] = not args.no_root_weight
    return [gsl.GSLNet.paper(**sizes, similarity=args.similarity, **options), x]


def train(
    model: torch.nn.Module, inputs: list[Any], data: Any, epochs: int, title: str
) -> dict[str, float]:
    """Train a model; only the validation nodes select the epoch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    best, best_state = {'val': -1.0}, {}
    start = time.perf_counter()
    for _ in tqdm(range(epochs), desc=f'{title:<18}', leave=False, disable=None):
        model.train()
        optimizer.zero_grad()
        out, mask = model(*inputs), data.train_mask
        cross_entropy(out[mask], data.y[mask]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            hit = (model(*inputs).argmax(dim=-1) == data.y).double()
        val = float(hit[data.val_mask].mean())
        if val > best['val']:
            best = {'val': val, 'test': float(hit[data.test_mask].mean())}
            best_state = {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(best_state)
    return {**best, 'seconds': time.perf_counter() - start}


def print_table(results: dict[str, list[dict[str, float]]]) -> None:
    """Print the mean and standard deviation over splits of all accuracies."""
    print(f'\n{"accuracy in %":<16}{"validation":>14}{"test":>14}{"seconds":>10}')
    for name, runs in results.items():
        line = f'{MODELS[name]:<16}'
        for key in ('val', 'test'):
            shares = [100 * run[key] for run in runs]
            spread = f' ± {statistics.stdev(shares):.1f}' if len(shares) > 1 else ''
            line += f'{statistics.mean(shares):.1f}{spread}'.rjust(14)
        print(f'{line}{statistics.mean(run["seconds"] for run in runs):>10.1f}')


def conclude(results: dict[str, list[dict[str, float]]], num_splits: int) -> None:
    """Print whether the learned graph is better than its controls on all splits."""
    print(f'mean ± sample standard deviation over {num_splits} splits, 50 / 25 / 25 %')
    test = {
        name: 100 * statistics.mean(run['test'] for run in runs)
        for name, runs in results.items()
    }
    controls = [name for name in test if name in ('mlp', 'knn')]
    if 'full' not in test or not controls:
        return
    best = max(controls, key=test.__getitem__)
    pairs = zip(results['full'], results[best], strict=True)
    better = sum(learned['test'] > control['test'] for learned, control in pairs)
    verdict = 'does not pay'
    if test['full'] > test[best]:
        verdict = 'pays' if better == num_splits else 'does not clearly pay'
    print(
        f'\nThe learned graph {verdict} here: it is better than "{MODELS[best]}" on '
        f'{better} of {num_splits} splits\n({test["full"]:.1f} % of the test nodes are '
        f'right with it, {test[best]:.1f} % without).'
    )


@torch.no_grad()
def show_graph(model: gsl.GSLNet, data: Data, dataset: str, folder: Path) -> None:
    """Draw the graph that the first layer learned, and write a page to explore it."""
    model.eval()
    frozen = FreezeLatentGraph(model, k=5)(Data(x=data.x))
    graph = gsl.SampledGraph(frozen.edge_index, frozen.edge_weight)
    summary = describe_graph(graph, data.y)
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / 'graph.png'
    figure: Any = plot_graph(graph, y=data.y, max_nodes=100).figure
    figure.savefig(picture, dpi=150)
    page = explore(
        graph,
        data=data,
        path=folder / 'graph.html',
        prediction=model(data.x).argmax(dim=-1),
        images=torch.tensor(load_digits().images) if dataset == 'digits' else None,
        title=f'{dataset}: the learned graph',
    )
    share, chance = 100 * (summary.weighted_homophily or 0), 100 * (summary.chance or 0)
    print(
        f'\n{share:.0f} % of the weight of the learned graph joins nodes of one class, '
        f'{chance:.0f} % would by chance.\n'
        f'{picture} shows a part of it; open {page} in a browser to look around in it.'
    )


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--dataset', default='digits', choices=[*TABLES, *CITATIONS])
    parser.add_argument('--similarity', default='neural_gaussian', choices=SIMILARITIES)
    parser.add_argument(
        '--models', nargs='+', default=['full', 'mlp', 'knn'], choices=MODELS
    )
    parser.add_argument('--k', type=int, default=5)
    parser.add_argument('--tau', type=float, default=0.25)
    parser.add_argument('--scale', type=float, default=1.0)
    parser.add_argument('--no-root-weight', action='store_true')
    parser.add_argument('--epochs', type=int, default=60)
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--out', type=Path, default=Path('runs/gausim'))
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    data = load(args.dataset)
    split = RandomNodeSplit(num_val=0.25, num_test=0.25)
    print(f'{args.dataset}: {data.num_nodes:,} nodes, {data.num_features:,} features')
    results: dict[str, list[Any]] = {name: [] for name in dict.fromkeys(args.models)}
    learned = None
    for seed in range(args.seeds):
        seed_everything(seed)
        data = split(data)
        for name, runs in results.items():
            seed_everything(seed)
            model, *inputs = build(name, data, args)
            title = f'{MODELS[name]}, {seed}'
            runs.append(train(model, inputs, data, args.epochs, title))
            if name == 'full':
                learned = model
    print_table(results)
    conclude(results, args.seeds)
    if learned is not None:
        show_graph(learned, data, args.dataset, args.out / args.dataset)


if __name__ == '__main__':
    main()
