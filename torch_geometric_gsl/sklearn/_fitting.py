"""Fit the members of a blend, and find their weights."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from operator import methodcaller
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.exceptions import ConvergenceWarning

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.models.table_net import TableNet
from torch_geometric_gsl.ops.generators import GeneratorMode
from torch_geometric_gsl.sklearn._column_warnings import warn_of_columns
from torch_geometric_gsl.sklearn._explain import ExplainMixin
from torch_geometric_gsl.sklearn._members import (
    BOOSTINGS,
    LINEAR,
    Nets,
    SklearnModels,
    fit_sklearn,
    sklearn_outputs,
)
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


class BlendMixin(ExplainMixin):
    """Base class of estimators that fit a blend of members."""

    _network_class: Any = TableNet

    def _graphs_and_scalings(
        self, splits: list[RowSplit]
    ) -> tuple[tuple[str, ...], list[str]]:
        """Return kinds of graphs, and scalings of columns for each of them."""
        num_rows = self._x.shape[0]
        graphs: tuple[str, ...] = GRAPHS if self.graph == AUTO else (self.graph,)
        if len(splits[0].candidates) < 2 and self.graph != 'none':
            warn_caller(
                f'graph={self.graph!r} has no edges: of {num_rows} rows, only '
                f'{len(splits[0].candidates)} is not held back for validation, and it '
                "has no neighbour. The estimator is fitted with graph='none'",
                UserWarning,
            )
            graphs = ('none',)
        scalings = [self.scaling]
        if self.scaling == AUTO:
            scalings = ['robust']
            is_both = _MIN_ROWS_OF_BOTH <= num_rows <= _MAX_ROWS_OF_BOTH
            # Quantiles are constant outside of training rows: new groups are there.
            if self.graph == AUTO and is_both and self._seen == [None, None]:
                scalings.append('quantile')
        if scipy.sparse.issparse(self._x):
            scalings = ['none' if self.scaling == 'none' else 'unit norm']
        return graphs, scalings

    def _fit_members(
        self, table: Table, splits: list[RowSplit], random: Any
    ) -> tuple[list[Any], list[Any]]:
        """Fit all members on all splits; return them, and outputs of held-back rows."""
        members, val_outputs = self._fit_nets(table, splits, random)
        if self.graph == AUTO:
            # Trees take no sparse rows.
            is_sparse = scipy.sparse.issparse(self._x)
            for name in (LINEAR, *(() if is_sparse else BOOSTINGS)):
                member, outputs = self._fit_sklearn(name, table, splits, random)
                members.append(member)
                val_outputs.append(outputs)
        return members, val_outputs

    def _fit_nets(
        self, table: Table, splits: list[RowSplit], random: Any
    ) -> tuple[list[Any], list[Any]]:
        """Train networks of all kinds; return them, and outputs of held-back rows."""
        graphs, names = self._graphs_and_scalings(splits)
        scalings = [Scaling(name).fit(self._x) for name in names]
        warn_of_columns(self._x, self._table, scalings[0].scaling)
        scaled = [(scaling, scaling.apply(self._x)) for scaling in scalings]
        members = []
        for graph, (scaling, x) in itertools.product(graphs, scaled):
            name = f'{_NAMES[graph]}, {scaling.scaling}'
            members.append(Nets(name, graph, scaling, self._num_classes, x))
        trainings = [
            self._start(member, split, table, _seed(random))
            for member, split in itertools.product(members, splits)
        ]
        active = trainings
        with ExitStack() as bars:
            for training in trainings:
                bars.enter_context(closing(training.bar))
            while active:
                stop = threading.Event()
                self._in_threads(methodcaller('run_cycle', stop), active, stop)
                active = _still_active(active, trainings, len(splits))
        predictions = self._in_threads(
            methodcaller('finish_and_predict'), trainings, threading.Event()
        )
        val_outputs = []
        for index, member in enumerate(members):
            rows = slice(index * len(splits), (index + 1) * len(splits))
            member.models = [training.model for training in trainings[rows]]
            outputs, distances = zip(*predictions[rows], strict=True)
            # Of the first network, which tells the distances of new rows.
            if len(distances[0]) > 0:
                member.far = float(np.quantile(distances[0], _FAR_QUANTILE))
            val_outputs.append(np.concatenate(outputs))
        if not all(training.has_converged for training in trainings):
            text = f"networks still improved after 'max_iter' = {self.max_iter} epochs"
            warn_caller(text, ConvergenceWarning)
        self.loss_curve_ = trainings[0].losses
        self.n_iter_ = max(len(training.losses) for training in trainings)
        return members, val_outputs

    def _in_threads(
        self,
        function: Callable[[Training], Any],
        trainings: list[Training],
        stop: threading.Event,
    ) -> list[Any]:
        """Apply a function to several trainings at once, which share the threads.

        However this ends, the event then tells those that still run to end as well.
        """
        num_tasks = len(trainings)
        num_rows = self._x.shape[0]
        num_threads = 1 if self._device.type != 'cpu' else torch.get_num_threads()
        num_workers = min(num_threads, num_tasks)
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

    def _start(
        self, member: Nets, split: RowSplit, table: Table, seed: int
    ) -> Training:
        """Make a network to be trained on a split."""
        if not scipy.sparse.issparse(x := member.x):
            x = to_tensor(x, self._device, torch.float32)
        options = options_of(self, len(split.train))
        with GeneratorMode(torch.Generator().manual_seed(seed)):
            model = self._network(member, options).to(self._device)
        rows = RowSplit(*(torch.from_numpy(i).to(self._device) for i in split))
        return Training(model, table._replace(x=x), rows, options, seed, member.name)

    def _fit_sklearn(
        self, name: str, table: Table, splits: list[RowSplit], random: Any
    ) -> tuple[SklearnModels, Any]:
        """Fit models of scikit-learn; return them, and outputs of held-back rows."""
        # Columns bent far outside keep a line from going far astray.
        scaling_name = 'linear' if name == LINEAR else 'standard'
        if scipy.sparse.issparse(self._x):
            scaling_name = 'unit norm'
        scaling = Scaling(scaling_name).fit(self._x)
        x = scaling.apply(self._x, np.float64)
        models = []
        outputs = []
        for split in splits:
            seed = None if name == LINEAR else _seed(random)
            args = name, x, table, split, self._num_classes, seed
            with threads_for(x.shape[0]):
                split_models = fit_sklearn(*args)
            models.append(split_models)
            out = np.empty((0, self._num_outputs))
            if len(split.val) > 0:
                out = sklearn_outputs(split_models, x[split.val], self._num_classes)
            outputs.append(out)
        member = SklearnModels(name, scaling, self._num_classes, models)
        return member, np.concatenate(outputs)

    def _network(self, member: Nets, options: Any) -> TableNet:
        # Embeddings of many columns are slow and rarely help.
        columns = member.scaling.varied.tolist()
        columns = columns if len(columns) <= _MAX_EMBEDDED else []
        has_null = self._seen != [None, None] and member.family == 'learned'
        network: TableNet = self._network_class(
            self._x.shape[1],
            options.hidden_channels,
            self._num_outputs,
            graph=member.family,
            num_blocks=options.num_blocks,
            num_frequencies=8 if columns else 0,
            periodic_columns=columns,
            dropout=options.dropout,
            null_score=0.0 if has_null else None,
            **copy.deepcopy(self._net_options),
        )
        return network

    def _prepare(self) -> None:
        """Index the training rows in the networks, in the precision of predictions."""
        is_small = self._x.shape[0] <= _MAX_DOUBLE_ROWS
        is_double = self._device.type == 'cpu' and is_small
        precision = torch.float64 if is_double else torch.float32
        known_y, group, order = self._on_device(self._known_y, *self._seen)
        for member in self._blend.members:
            if isinstance(member, Nets):
                member.prepare(known_y, {'group': group, 'order': order}, precision)

    def _on_device(self, *tensors: Any) -> list[Any]:
        """Return tensors, which may be None, on the device of the networks."""
        return [x if x is None else x.to(self._device) for x in tensors]


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


def options_of(estimator: Any, num_rows: int) -> SimpleNamespace:
    """Return the parameters of an estimator, with sizes for its table."""
    options = SimpleNamespace(**estimator.get_params(deep=False))
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


def _seed(random: Any) -> int:
    return int(random.randint(2**31 - 1))
