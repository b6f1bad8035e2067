"""Draw the paper's figures from finished runs, as PNG and SVG.

    python paper/figures.py
    python paper/figures.py temperature removal
    python paper/figures.py removal --datasets CS Chameleon --out drawn

`parameters`, `removal` and `graphs` show trained models of the first seed, which
`run.py` stores in `<results>/runs/`. A clone has the results without the models: they
are trained again and stored; no result changes.
"""

from __future__ import annotations

import argparse
import math
import re
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch_geometric.data import Data

from reproduction import command
from reproduction.attacked_tables import attacked_figure
from reproduction.documents import SEEDS
from reproduction.experiments import CONTROLS, EXPERIMENTS, TAUS, Choice, RunConfig
from reproduction.hidden import hidden_figure
from reproduction.labels import labels_figure
from reproduction.noisy import noise_figure
from reproduction.sensors import sensors_figure
from reproduction.settings import METHODS, PRESETS, RESULTS
from reproduction.similarity_curves import curves
from reproduction.store import Store
from reproduction.summary import Cell
from reproduction.tables import cell_of, head
from reproduction.trained import (
    FIRST_SEED,
    REMOVED,
    absent_runs,
    after_removal,
    has_model,
    load_trained,
)
from reproduction.training import split_of
from torch_geometric_gsl.diagnostics import describe_model
from torch_geometric_gsl.transforms import FreezeLatentGraph
from torch_geometric_gsl.typing import SampledGraph
from torch_geometric_gsl.visualization import plot_adjacency, plot_graph

OUT = Path(__file__).resolve().parents[1] / 'docs' / '_figures'
COLUMNS = 4
Figures = dict[str, Figure]


def temperature(store: Store, choice: Choice) -> Figures:
    """Plot test accuracy over temperature, on the splits that all temperatures have."""
    experiment = EXPERIMENTS['temperature']
    (method,) = experiment.methods
    rows: dict[str, tuple[set[int], list[Cell]]] = {}
    for dataset in choice.datasets or experiment.datasets:
        cells = [cell_of(store, choice, dataset, method, tau=tau) for tau in TAUS]
        if seeds := common_seeds(cells):
            rows[dataset] = seeds, cells
    if not rows:
        return {}
    figure, axes = panels(rows)
    for dataset, (seeds, cells) in rows.items():
        same = [
            Cell({s: cell.test[s] for s in seeds & cell.test.keys()}) for cell in cells
        ]
        draw_line(axes[dataset], TAUS, same, METHODS[method].title)
        of_seeds = choice._replace(seeds=sorted(seeds))
        draw_controls(axes[dataset], store, of_seeds, dataset)
        axes[dataset].set(xlabel=r'temperature $\tau$', xticks=TAUS)
    return {'temperature': with_legend(figure)}


def common_seeds(row: list[Cell]) -> set[int]:
    """Return the seeds that all cells with runs share; none for fewer than two."""
    seeds = [set(cell.test) for cell in row if cell.test]
    return set.intersection(*seeds) if len(seeds) > 1 else set()


def removal(store: Store, choice: Choice) -> Figures:
    """Plot test accuracy after removing transition nodes or anchors of a model."""
    configs = with_models('removal', store, choice)
    if not configs:
        return {}
    figure, axes = panels(config.dataset for config in configs)
    for config in configs:
        data = split_of(config, command.load(config.dataset, config.label))
        cells = after_removal(store, config, data)
        title = METHODS[config.method].title
        draw_line(axes[config.dataset], cells, cells.values(), title)
    for dataset, ax in axes.items():
        # The controls on the same split.
        draw_controls(ax, store, choice._replace(seeds=FIRST_SEED), dataset)
        ax.set(xlabel='removed nodes', xticks=REMOVED)
    return {'removal': with_legend(figure)}


def parameters(store: Store, choice: Choice) -> Figures:
    """Draw box plots of centres and widths of both layers; widths are ten times c."""
    configs = with_models('parameters', store, choice)
    if not configs:
        return {}
    figure, axes = panels(config.dataset for config in configs)
    for config in configs:
        data = command.load(config.dataset, config.label)
        layers = describe_model(load_trained(store, config, data), data.x).layers
        boxes: dict[str, Tensor] = {}
        for layer_index, layer in enumerate(layers, start=1):
            assert layer.b is not None
            assert layer.c is not None
            boxes[f'$b_{layer_index}$'] = layer.b
            boxes[f'$10\\,c_{layer_index}$'] = 10 * layer.c
        axes[config.dataset].boxplot(
            [box.flatten().cpu().numpy() for box in boxes.values()],
            tick_labels=list(boxes),
            whis=(5, 95),
            showfliers=False,
        )
        axes[config.dataset].set_ylim(0, 1)
    return {'parameters': figure}


def graphs(store: Store, choice: Choice) -> Figures:
    """Draw the learned graphs of two layers."""
    figures = {}
    configs = with_models('graphs', store, choice)
    titles = titles_of(config.dataset for config in configs)
    for config in configs:
        data = command.load(config.dataset, config.label)
        model: Any = load_trained(store, config, data).eval()
        frozen = [FreezeLatentGraph(model, n, k=5)(Data(x=data.x)) for n in (0, 1)]

        name = re.sub(r'[^\w.-]', '_', titles[config.dataset]).strip('_')
        if f'graph_{name}_layer1' in figures:
            name = f'{name}_{config.setting}'
        for layer_index, stored in enumerate(frozen, start=1):
            graph = SampledGraph(stored.edge_index, stored.edge_weight)
            figures[f'graph_{name}_layer{layer_index}'] = draw_graph(graph, data['y'])
    return figures


def draw_graph(graph: SampledGraph, y: Tensor) -> Figure:
    """Draw the adjacency matrix of a graph, and its strongest edges next to it."""
    figure = Figure(figsize=(12, 4.8), layout='constrained')
    left, right = figure.subplots(1, 2)
    plot_adjacency(graph, y, ax=left)
    plot_graph(graph, y, ax=right)
    return figure


def of_file(
    name: str, draw: Callable[[Path], Figure | None]
) -> Callable[[Store, Choice], Figures]:
    """Make a figure of an experiment with its own results file."""

    def figures(store: Store, choice: Choice) -> Figures:
        figure = draw(store.root)
        return {} if figure is None else {name: figure}

    return figures


def titles_of(datasets: Iterable[str]) -> dict[str, str]:
    """Return titles of data sets; a file has its name, unless two files share it."""
    names = tuple(datasets)
    return dict(zip(names, head(names)[1:], strict=True))


def with_models(experiment: str, store: Store, choice: Choice) -> list[RunConfig]:
    """List the runs of the first seed that have a model to show."""
    configs = EXPERIMENTS[experiment].configs(choice._replace(seeds=FIRST_SEED))
    return [config for config in configs if has_model(store, config)]


def draw_controls(ax: Axes, store: Store, choice: Choice, dataset: str) -> None:
    for style, control in zip(('--', ':'), CONTROLS, strict=True):
        cell = cell_of(store, choice, dataset, control)
        if cell.test:
            title = METHODS[control].title
            ax.axhline(cell.mean, color='0.4', linestyle=style, label=title)
    ax.set_ylabel('test accuracy, %')
    ax.grid(alpha=0.3)


def panels(datasets: Iterable[str]) -> tuple[Figure, dict[str, Axes]]:
    """Make a figure with a titled panel for each data set."""
    titles = titles_of(dict.fromkeys(datasets))
    columns = min(len(titles), COLUMNS)
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(3.2 * columns, 2.9 * rows), layout='constrained')
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for ax in axes[len(titles) :]:
        ax.remove()
    for ax, title in zip(axes, titles.values(), strict=False):
        ax.set_title(title)
    return figure, dict(zip(titles, axes, strict=False))


def draw_line(ax: Axes, x: Iterable[float], cells: Iterable[Cell], name: str) -> None:
    points = [(value, cell) for value, cell in zip(x, cells, strict=True) if cell.test]
    if not points:
        return
    means = [cell.mean for _, cell in points]
    spread = [0.0 if math.isnan(cell.std) else cell.std for _, cell in points]
    ax.errorbar([value for value, _ in points], means, spread, marker='o', label=name)


def with_legend(figure: Figure) -> Figure:
    handles_by_label: dict[str, Artist] = {}
    for ax in figure.axes:
        handles, labels = ax.get_legend_handles_labels()
        handles_by_label |= dict(zip(labels, handles, strict=True))
    figure.legend(
        handles=list(handles_by_label.values()),
        labels=list(handles_by_label),
        loc='outside lower center',
        ncols=min(len(figure.axes), COLUMNS),
    )
    return figure


FIGURES: dict[str, Callable[[Store, Choice], Figures]] = {
    'curves': curves,
    'temperature': temperature,
    'removal': removal,
    'parameters': parameters,
    'graphs': graphs,
    'hidden': of_file('hidden', hidden_figure),
    'noise': of_file('noise', noise_figure),
    'attacked': of_file('attacked', attacked_figure),
    'sensors': of_file('sensors', sensors_figure),
    'labels': of_file('labels', labels_figure),
}


def parse_args() -> argparse.Namespace:
    parser = command.make_parser(__doc__)
    add = parser.add_argument
    add('figures', nargs='*', metavar='figure', help=', '.join(FIGURES))
    add('--datasets', nargs='+', default=[], metavar='DATASET', help='names or files')
    add('--out', type=Path, help='folder of the figures (that of the documentation)')
    command.add_choice(parser)
    command.add_threads(parser)
    parser.set_defaults(methods=())
    args = parser.parse_args()
    if unknown := [name for name in args.figures if name not in FIGURES]:
        parser.error(f"'figure' must be one of {', '.join(FIGURES)} (got {unknown})")
    is_selection = args.datasets or args.preset != PRESETS[0]
    if args.out is None and (
        is_selection or args.results.resolve() != RESULTS.resolve()
    ):
        # Captions of the documentation describe its own figures.
        parser.error("name a folder, --out: others are not the documentation's")
    args.out = args.out or OUT
    for name in ('results', 'out'):
        path = getattr(args, name)
        if path.exists() and not path.is_dir():
            parser.error(f"--{name} must be a folder (got '{path}')")
    return args


def save(figures: Figures, folder: Path) -> None:
    for name, figure in figures.items():
        for suffix in ('png', 'svg'):
            path = folder / f'{name}.{suffix}'
            metadata = {'Date': None} if suffix == 'svg' else {}
            figure.savefig(path, dpi=120, metadata=metadata)
            print('wrote', path)


@command.told_plainly()
def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    command.check_files(args.datasets, args.label)
    warnings.filterwarnings('ignore', 'Sparse CSR')
    mpl.rcParams['svg.hashsalt'] = 'torch_geometric_gsl'
    store = Store(args.results)
    is_all = True
    lines: dict[str, None] = {}
    args.out.mkdir(parents=True, exist_ok=True)
    choice = command.choice_of(args, SEEDS)
    for name in args.figures or FIGURES:
        figures = FIGURES[name](store, choice)
        save(figures, args.out)
        lines |= dict.fromkeys(absent_runs(name, store, choice))
        is_all = is_all and bool(figures)
    if not lines:
        return
    text = '\n  '.join(['not drawn, as runs are missing:', *lines])
    # The documentation shows those of an experiment's data sets that have run.
    if choice.datasets or not is_all:
        raise SystemExit(text)
    print(text)
