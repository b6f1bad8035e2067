"""Fit the members of a blend to the rows of a table."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from sklearn.exceptions import ConvergenceWarning

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.models.table_net import TableNet
from torch_geometric_gsl.ops.generators import GeneratorMode
from torch_geometric_gsl.sklearn._blend import Blend
from torch_geometric_gsl.sklearn._column_warnings import warn_of_columns
from torch_geometric_gsl.sklearn._members import (
    BOOSTINGS,
    LINEAR,
    Nets,
    SklearnModels,
    fit_sklearn,
    sklearn_outputs,
)
from torch_geometric_gsl.sklearn._rows import TrainingRows
from torch_geometric_gsl.sklearn._runtime import default_modes, threads_for
from torch_geometric_gsl.sklearn._scaling import Scaling, to_tensor
from torch_geometric_gsl.sklearn._splits import RowSplit, Table
from torch_geometric_gsl.sklearn._training import Training

AUTO = 'auto'
# From these numbers of rows on: width, dropout, residual blocks of a network, rows of a
# block, and blocks of a step.
_SIZES = (
    (0, (64, 0.3, 1, 128, 1)),
    (1000, (128, 0.2, 2, 128, 2)),
    (4000, (192, 0.1, 2, 128, 2)),
    (10_000, (192, 0.1, 2, 256, 4)),
)
#: The graphs of the rows of a table, and the names of their members.
_NAMES = {'learned': 'learned graph', 'none': 'no graph'}
GRAPHS = tuple(_NAMES)
# The parameters that all networks have in common.
_NETWORK_OPTIONS = ('similarity', 'draws', 'eval_k')
# Both scalings are tried between these numbers of rows.
_MIN_ROWS_OF_BOTH = 1000
_MAX_ROWS_OF_BOTH = 200_000
# With more columns, there are no periodic embeddings.
_MAX_EMBEDDED = 32
# Tables of at most this many rows are predicted in double precision.
_MAX_DOUBLE_ROWS = 2**17
# A network with a larger ratio of its loss to the smallest one is given up, after this
# number of cycles and of visits of rows.
_MAX_LOSS_RATIO = 1.3
_MIN_CYCLES = 2
_MIN_VISITS = 240_000
# Narrower networks have at most this number of threads, or one if several are trained.
_MIN_WIDTH_OF_THREADS = 512
_MAX_NARROW_THREADS = 4
# Rows are far if they are farther than this quantile of the held-back ones.
_FAR_QUANTILE = 0.99


class FittedMembers(NamedTuple):
    """Members, their outputs of held-back rows, and the losses of their networks."""

    members: list[Any]
    val_outputs: list[Any]
    losses: list[list[float]]  # Of each network, after each epoch.


def training_table(rows: TrainingRows, weight: Any, device: torch.device) -> Table:
    """Return targets and weights on a device; the target of weight 0 is 0."""
    weight = torch.from_numpy(weight)
    y = rows.known_y.clone()
    y[weight == 0] = 0  # Its loss is finite.
    group, order = rows.row_mask(device).values()
    known_y = rows.known_y.to(device)
    return Table(None, y.to(device), known_y, weight.to(device), group, order)


def fit_members(
    rows: TrainingRows, table: Table, splits: list[RowSplit], options: Any, random: Any
) -> FittedMembers:
    """Fit all members on all splits.

    Args:
        rows (TrainingRows): The rows.
        table (Table): Their targets and weights, on the device of the networks.
        splits (list[RowSplit]): The rows to train on and those to hold back.
        options (SimpleNamespace): The parameters of the estimator, and the classes of
            its networks and of their training.
        random (numpy.random.RandomState): The source of seeds.
    """
    fitted = _fit_nets(rows, table, splits, options, random)
    if options.graph == AUTO:
        # Trees take no sparse rows.
        is_sparse = scipy.sparse.issparse(rows.x)
        for name in (LINEAR, *(() if is_sparse else BOOSTINGS)):
            member, outputs = _fit_sklearn(name, rows, table, splits, random)
            fitted.members.append(member)
            fitted.val_outputs.append(outputs)
    return fitted


def _graphs_and_scalings(
    rows: TrainingRows, splits: list[RowSplit], options: Any
) -> tuple[tuple[str, ...], list[str]]:
    """Return kinds of graphs, and scalings of columns for each of them."""
    graphs: tuple[str, ...] = GRAPHS if options.graph == AUTO else (options.graph,)
    if len(splits[0].candidates) < 2 and options.graph != 'none':
        warn_caller(
            f'graph={options.graph!r} has no edges: of {rows.num_rows} rows, only '
            f'{len(splits[0].candidates)} is not held back for validation, and it '
            "has no neighbour. The estimator is fitted with graph='none'",
            UserWarning,
        )
        graphs = ('none',)
    scalings = [options.scaling]
    if options.scaling == AUTO:
        scalings = ['robust']
        is_both = _MIN_ROWS_OF_BOTH <= rows.num_rows <= _MAX_ROWS_OF_BOTH
        # Quantiles are constant outside of training rows: new groups are there.
        if options.graph == AUTO and is_both and not rows.is_hidden:
            scalings.append('quantile')
    if scipy.sparse.issparse(rows.x):
        scalings = ['none' if options.scaling == 'none' else 'unit norm']
    return graphs, scalings


def _fit_nets(
    rows: TrainingRows, table: Table, splits: list[RowSplit], options: Any, random: Any
) -> FittedMembers:
    """Train networks of all graphs and scalings."""
    graphs, names = _graphs_and_scalings(rows, splits, options)
    scalings = [Scaling(name).fit(rows.x) for name in names]
    warn_of_columns(rows.x, rows.encoder, scalings[0].scaling)
    scaled = [(scaling, scaling.apply(rows.x)) for scaling in scalings]
    members = []
    for graph, (scaling, x) in itertools.product(graphs, scaled):
        name = f'{_NAMES[graph]}, {scaling.scaling}'
        members.append(Nets(name, graph, scaling, rows.num_classes, x))
    trainings = [
        _start_training(member, rows, split, table, options, _seed(random))
        for member, split in itertools.product(members, splits)
    ]
    active = trainings
    with ExitStack() as bars:
        for training in trainings:
            bars.enter_context(closing(training.bar))
        while active:
            stop = threading.Event()
            _in_threads(methodcaller('run_cycle', stop), active, rows.num_rows, stop)
            active = _still_active(active, trainings, len(splits))
    predictions = _in_threads(
        methodcaller('finish_and_predict'), trainings, rows.num_rows, threading.Event()
    )
    val_outputs = []
    for index, member in enumerate(members):
        of_member = slice(index * len(splits), (index + 1) * len(splits))
        member.models = [training.model for training in trainings[of_member]]
        outputs, distances = zip(*predictions[of_member], strict=True)
        # Of the first network, which tells the distances of new rows.
        if len(distances[0]) > 0:
            member.far = float(np.quantile(distances[0], _FAR_QUANTILE))
        val_outputs.append(np.concatenate(outputs))
    if not all(training.has_converged for training in trainings):
        text = f"networks still improved after 'max_iter' = {options.max_iter} epochs"
        warn_caller(text, ConvergenceWarning)
    losses = [training.losses for training in trainings]
    return FittedMembers(members, val_outputs, losses)


def _start_training(
    member: Nets,
    rows: TrainingRows,
    split: RowSplit,
    table: Table,
    options: Any,
    seed: int,
) -> Training:
    """Make a network to be trained on a split."""
    device = table.y.device
    if not scipy.sparse.issparse(x := member.x):
        x = to_tensor(x, device, torch.float32)
    options = with_sizes(options, len(split.train))
    with GeneratorMode(torch.Generator().manual_seed(seed)):
        net = make_network(
            options.network_class, rows, member, options, network_options(options)
        )
    split = RowSplit(*(torch.from_numpy(i).to(device) for i in split))
    training: Training = options.training_class(
        net.to(device), table._replace(x=x), split, options, seed, member.name
    )
    return training


def _in_threads(
    function: Callable[[Training], Any],
    trainings: list[Training],
    num_rows: int,
    stop: threading.Event,
) -> list[Any]:
    """Apply a function to several trainings at once, which share the threads.

    However this ends, the event then tells those that still run to end as well.
    """
    is_cpu = trainings[0].generator.device.type == 'cpu'
    num_threads = torch.get_num_threads() if is_cpu else 1
    num_workers = min(num_threads, len(trainings))
    max_narrow = _MAX_NARROW_THREADS if num_workers == 1 else 1

    @default_modes()
    def run(training: Training) -> Any:
        is_wide = training.options.hidden_channels >= _MIN_WIDTH_OF_THREADS
        share = num_threads // num_workers
        with threads_for(num_rows, share if is_wide else min(share, max_narrow)):
            return function(training)

    if num_workers == 1:
        # OpenMP's threads answer the main thread much faster than another.
        return [run(training) for training in trainings]
    with ThreadPoolExecutor(num_workers) as pool:
        try:
            return list(pool.map(run, trainings))
        finally:
            stop.set()


def _still_active(
    active: list[Training], trainings: list[Training], num_splits: int
) -> list[Training]:
    """Return the trainings to be continued: not ended, nor far behind others."""
    remaining = []
    for training in active:
        split = trainings.index(training) % num_splits
        cycle = len(training.cycles) - 1
        rivals = [
            rival.cycles[cycle]
            for rival in trainings[split::num_splits]
            if len(rival.cycles) > cycle
        ]
        is_tried = cycle >= _MIN_CYCLES and training.num_visits >= _MIN_VISITS
        if is_tried and training.cycles[cycle] > _MAX_LOSS_RATIO * min(rivals):
            training.has_converged = True
        if not training.has_ended:
            remaining.append(training)
    return remaining


def with_sizes(options: Any, num_rows: int) -> Any:
    """Return the parameters of an estimator, with sizes for its table."""
    options = copy.copy(options)
    sizes = [sizes for min_rows, sizes in _SIZES if min_rows <= num_rows][-1]
    width, dropout, options.num_blocks, block_size, options.step_blocks = sizes
    for name, size in (
        ('hidden_channels', width),
        ('dropout', dropout),
        ('block_size', block_size),
    ):
        if getattr(options, name) == 'auto':
            setattr(options, name, size)
    return options


def network_options(options: Any) -> dict[str, Any]:
    """Return the parameters that all networks have in common."""
    return {name: getattr(options, name) for name in _NETWORK_OPTIONS}


def make_network(
    network_class: Any,
    rows: TrainingRows,
    member: Nets,
    sizes: Any,
    options: dict[str, Any],
) -> TableNet:
    """Make a network of a member, with its sizes and with common options."""
    # Embeddings of many columns are slow and rarely help.
    columns = member.scaling.varied.tolist()
    columns = columns if len(columns) <= _MAX_EMBEDDED else []
    has_null = rows.is_hidden and member.family == 'learned'
    network: TableNet = network_class(
        rows.x.shape[1],
        sizes.hidden_channels,
        rows.num_outputs,
        graph=member.family,
        num_blocks=sizes.num_blocks,
        num_frequencies=8 if columns else 0,
        periodic_columns=columns,
        dropout=sizes.dropout,
        null_score=0.0 if has_null else None,
        **copy.deepcopy(options),
    )
    return network


def _fit_sklearn(
    name: str, rows: TrainingRows, table: Table, splits: list[RowSplit], random: Any
) -> tuple[SklearnModels, Any]:
    """Fit models of scikit-learn; return them, and outputs of held-back rows."""
    # Columns bent far outside keep a line from going far astray.
    scaling_name = 'linear' if name == LINEAR else 'standard'
    if scipy.sparse.issparse(rows.x):
        scaling_name = 'unit norm'
    scaling = Scaling(scaling_name).fit(rows.x)
    x = scaling.apply(rows.x, np.float64)
    models = []
    outputs = []
    for split in splits:
        seed = None if name == LINEAR else _seed(random)
        with threads_for(rows.num_rows):
            split_models = fit_sklearn(name, x, table, split, rows.num_classes, seed)
        models.append(split_models)
        out = np.empty((0, rows.num_outputs))
        if len(split.val) > 0:
            out = sklearn_outputs(split_models, x[split.val], rows.num_classes)
        outputs.append(out)
    member = SklearnModels(name, scaling, rows.num_classes, models)
    return member, np.concatenate(outputs)


def index_rows(blend: Blend, rows: TrainingRows, device: torch.device) -> None:
    """Index the training rows in the networks, in the precision of predictions."""
    is_double = device.type == 'cpu' and rows.num_rows <= _MAX_DOUBLE_ROWS
    precision = torch.float64 if is_double else torch.float32
    known_y = rows.known_y.to(device)
    row_mask = rows.row_mask(device)
    for member in blend.members:
        if isinstance(member, Nets):
            member.prepare(known_y, row_mask, precision)


def _seed(random: Any) -> int:
    return int(random.randint(2**31 - 1))
