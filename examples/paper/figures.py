"""Draws the paper's figures from finished runs, as PNG and SVG.

    python examples/paper/figures.py
    python examples/paper/figures.py temperature removal

`parameters`, `removal` and `graphs` show trained models, which `run.py` keeps of the
first seed in `<results>/runs/`: run the experiment of that name before.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import matplotlib as mpl
import torch
from config import RunConfig
from experiments import EXPERIMENTS, TAUS
from matplotlib.figure import Figure
from methods import METHODS
from run import RESULTS, load
from settings import make_config
from store import Store
from summary import Cell, make_cell
from tables import SEEDS
from torch import Tensor
from trained import load_trained, without_nodes

from torch_geometric_gsl import (
    DifferenceSimilarity,
    GaussianSimilarity,
    HeatKernelSimilarity,
    LinearSimilarity,
)
from torch_geometric_gsl.datasets import paper_split
from torch_geometric_gsl.diagnostics import describe_model
from torch_geometric_gsl.visualization import plot_graph, plot_similarity_curves

OUT = Path(__file__).resolve().parents[2] / 'docs' / '_static' / 'paper'
REMOVED = (0, 100, 200, 300, 400)
#: Random choices of the nodes that are removed, of each number.
REMOVALS = 5
CONTROLS = ('mlp', 'knn_gcn_root')
Figures = dict[str, Figure]


def new_figure(panels: int, columns: int = 4) -> tuple[Figure, list[mpl.axes.Axes]]:
    columns = min(panels, columns)
    rows = -(-panels // columns)
    figure = Figure(figsize=(3.2 * columns, 2.9 * rows), layout='constrained')
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for ax in axes[panels:]:
        ax.remove()
    return figure, axes[:panels]


def curves(store: Store) -> Figures:
    """Sampling probability over similarity: Figures 2 and the appendix's two."""
    bells = {
        f'GauSim, b = {b}, c = {c:.3f}': GaussianSimilarity(1, b=b, c=c)
        for b, c in ((0.5, 0.02 * 2.718281828), (0.25, 0.1), (0.75, 0.1), (0.5, 0.5))
    }
    plain = {'LinSim': LinearSimilarity(1), 'DiffSim': DifferenceSimilarity(1)}
    heat = {f'heat, t = {t}': HeatKernelSimilarity(1, t=t) for t in (0.3, 0.5, 1.0)}
    return {
        'curves': plot_similarity_curves(plain | bells),
        'curves_heat': plot_similarity_curves(heat),
    }


def temperature(store: Store) -> Figures:
    """Test accuracy over the temperature."""
    experiment = EXPERIMENTS['temperature']
    (method,) = experiment.methods
    figure, axes = new_figure(len(experiment.datasets))
    for ax, dataset in zip(axes, experiment.datasets, strict=True):
        found = [cell_of(store, dataset, method, tau=tau) for tau in TAUS]
        draw_line(ax, TAUS, found, METHODS[method].title)
        draw_controls(ax, store, dataset)
        ax.set(title=dataset, xlabel=r'temperature $\tau$', xticks=TAUS)
    return {'temperature': with_legend(figure, axes)}


def removal(store: Store) -> Figures:
    """Test accuracy after transition nodes or anchors of a trained model are gone."""
    experiment = EXPERIMENTS['removal']
    figure, axes = new_figure(len(experiment.datasets))
    for ax, dataset in zip(axes, experiment.datasets, strict=True):
        for method in experiment.methods:
            config = make_config(dataset, method, 0)
            if store.record(config) is None:
                continue
            found = [after_removal(store, config, count) for count in REMOVED]
            draw_line(ax, REMOVED, found, METHODS[method].title)
        # The controls on the same split.
        draw_controls(ax, store, dataset, seeds=(0,))
        ax.set(title=dataset, xlabel='removed nodes', xticks=REMOVED)
    return {'removal': with_legend(figure, axes)}


def after_removal(store: Store, config: RunConfig, count: int) -> Cell:
    """The accuracy without some random nodes, over several choices of them."""
    data = paper_split(load(config.dataset, config.label), seed=config.seed)
    test = {}
    for choice in range(REMOVALS if count else 1):
        trained = load_trained(store, config, data)
        model = without_nodes(trained, config, data, count, choice)
        with torch.no_grad():
            hit = model.eval()(data.x).argmax(dim=-1) == data.y
        test[choice] = 100 * float(hit[data.test_mask].double().mean())
    return Cell(test)


def parameters(store: Store) -> Figures:
    """Box plots of the centres and widths of both layers; widths are ten times c."""
    experiment = EXPERIMENTS['parameters']
    (method,) = experiment.methods
    configs = [make_config(dataset, method, 0) for dataset in experiment.datasets]
    configs = [config for config in configs if store.record(config) is not None]
    figure, axes = new_figure(len(configs))
    for ax, config in zip(axes, configs, strict=True):
        data = load(config.dataset, config.label)
        layers = describe_model(load_trained(store, config, data), data.x).layers
        boxes: dict[str, Tensor] = {}
        for number, layer in enumerate(layers, start=1):
            boxes[f'$b_{number}$'] = layer.b
            boxes[f'$10\\,c_{number}$'] = 10 * layer.c
        ax.boxplot(
            [box.flatten().cpu().numpy() for box in boxes.values()],
            tick_labels=list(boxes),
            whis=(5, 95),
            showfliers=False,
        )
        ax.set(title=config.dataset, ylim=(0, 1))
    return {'parameters': figure}


def graphs(store: Store) -> Figures:
    """The learned graphs of two layers."""
    experiment = EXPERIMENTS['graphs']
    (dataset,), (method,) = experiment.datasets, experiment.methods
    data = load(dataset, None)
    model = load_trained(store, make_config(dataset, method, 0), data).eval()
    with torch.no_grad():
        found = model.graphs(data.x)
    return {
        f'graph_layer{number}': plot_graph(graph, y=data.y)
        for number, graph in enumerate(found, start=1)
    }


def cell_of(
    store: Store,
    dataset: str,
    method: str,
    seeds: Iterable[int] = SEEDS,
    **changes: float,
) -> Cell:
    configs = [make_config(dataset, method, seed, **changes) for seed in seeds]
    return make_cell(store, configs)


def draw_line(
    ax: mpl.axes.Axes, x: tuple[float, ...], found: list[Cell], name: str
) -> None:
    known = [(value, cell) for value, cell in zip(x, found, strict=True) if cell.test]
    if not known:
        return
    means = [cell.mean for _, cell in known]
    spread = [
        statistics.stdev(cell.test.values()) if len(cell.test) > 1 else 0.0
        for _, cell in known
    ]
    ax.errorbar([value for value, _ in known], means, spread, marker='o', label=name)


def draw_controls(
    ax: mpl.axes.Axes, store: Store, dataset: str, seeds: Iterable[int] = SEEDS
) -> None:
    for style, control in zip(('--', ':'), CONTROLS, strict=True):
        cell = cell_of(store, dataset, control, seeds)
        if cell.test:
            title = METHODS[control].title
            ax.axhline(cell.mean, color='0.4', linestyle=style, label=title)
    ax.set_ylabel('test accuracy, %')
    ax.grid(alpha=0.3)


def with_legend(figure: Figure, axes: list[mpl.axes.Axes]) -> Figure:
    named = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    figure.legend(
        list(named.values()), list(named), loc='outside lower center', ncols=4
    )
    return figure


FIGURES: dict[str, Callable[[Store], Figures]] = {
    'curves': curves,
    'temperature': temperature,
    'removal': removal,
    'parameters': parameters,
    'graphs': graphs,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('figures', nargs='*', metavar='figure', help=', '.join(FIGURES))
    parser.add_argument('--results', type=Path, default=RESULTS)
    parser.add_argument('--out', type=Path, default=OUT)
    args = parser.parse_args()
    warnings.filterwarnings('ignore', 'Sparse CSR')
    mpl.rcParams['svg.hashsalt'] = 'torch_geometric_gsl'
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.figures or FIGURES:
        for file, figure in FIGURES[name](Store(args.results)).items():
            for suffix in ('png', 'svg'):
                path = args.out / f'{file}.{suffix}'
                metadata = {'Date': None} if suffix == 'svg' else {}
                figure.savefig(path, dpi=120, metadata=metadata)
                print('wrote', path)


if __name__ == '__main__':
    main()
