"""Train a network on a table, in blocks of near rows that see each other."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel
from tqdm import tqdm

from torch_geometric_gsl.nn.models.table_net import TableNet
from torch_geometric_gsl.sklearn._blocks import near_blocks
from torch_geometric_gsl.sklearn._runtime import fast_products
from torch_geometric_gsl.sklearn._scaling import to_tensor
from torch_geometric_gsl.sklearn._splits import RowSplit

# From these numbers of rows on: width, dropout, residual blocks of a network, rows of a
# block, and blocks of a step.
_SIZES = (
    (0, (64, 0.3, 1, 128, 1)),
    (1000, (128, 0.2, 2, 128, 2)),
    (4000, (192, 0.1, 2, 128, 2)),
    (10_000, (192, 0.1, 2, 256, 4)),
)
# The first cycle has at least this number of steps.
_FIRST_STEPS = 30
# After this number of visits of rows or of steps, a cycle must improve the loss by the
# share `_MIN_GAIN` to be followed by another. Before, less is enough. In the first
# half, and while training rows have a much larger loss than held-back ones, one cycle
# may fail: the next is twice as long.
_LONG_VISITS = 600_000
_LONG_STEPS = 500
_MIN_GAIN = 0.1
_UNDERFIT = 1.5
# A smaller loss of classes counts as this one.
_MIN_CLASS_LOSS = 0.03
# With a smaller squared error of standardized numbers training ends.
_MIN_SQUARED_ERROR = 1e-4
# The share of a cycle in which the learning rate rises.
_WARMUP = 0.15
# The initial learning rate as a share of its peak.
_START_RATE = 0.05
# Learning rates of matrices and of the null neighbour's score, relative to others.
_MATRIX_RATE = 2
_NULL_RATE = 30
# Matrices of at least this size are optimized by Muon.
_MIN_MUON_SIDE = 32
# The largest numbers of rows and of candidates in validation.
_MAX_VAL_ROWS = 5_000
_MAX_CANDIDATES = 50_000
# Distances of this many held-back rows tell which rows are far.
_MAX_DISTANCES = 2_000
# Rows predicted at once.
_BLOCK = 2048
# The decay of the running average of the parameters.
_DECAY = 0.99
# The number of epochs without validation rows.
_EPOCHS_WITHOUT_VALIDATION = 30


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


class Table(NamedTuple):
    """Rows, dense or SciPy sparse, with targets.

    Labels sent as messages are -1 or NaN if unknown.
    """

    x: Any
    y: Tensor
    known_y: Tensor
    weight: Tensor
    group: Tensor | None = None  # Rows of one group do not see each other.
    order: Tensor | None = None  # Rows see those of a lower number.

    def take(self, rows: Tensor) -> Tensor:
        """Return some rows as one tensor."""
        if isinstance(self.x, Tensor):
            return self.x[rows]
        return to_tensor(self.x[rows.cpu().numpy()], rows.device, torch.float32)


def losses_of(out: Tensor, y: Tensor) -> Tensor:
    """Compute the loss of each row: cross-entropy for classes, else squared error."""
    if not y.is_floating_point():
        return F.cross_entropy(out, y, reduction='none')
    return (out - y).square().mean(dim=1)


class Training:
    """Train a network by cycles of the learning rate, each twice as long as the last.

    Training ends after a cycle that hardly improves the loss of held-back rows. The
    seed determines blocks and dropout.
    """

    def __init__(
        self,
        model: TableNet,
        table: Table,
        split: RowSplit,
        options: Any,
        seed: int,
        name: str = '',
    ) -> None:
        self.model = model
        self.table = table
        self.split = split
        self.options = options
        self.generator = torch.Generator(table.y.device).manual_seed(seed)
        _start_null(model, table, split, self.generator)
        self.average: Any = AveragedModel(model, multi_avg_fn=_average).eval()
        self.optimizers = _make_optimizers(model, options)
        self.best = math.inf
        self.state = model.state_dict()
        self.losses: list[float] = []  # Of training after each epoch.
        self.cycles: list[float] = []  # Of held-back rows after each cycle.
        self.val = subsample(split, seed)
        num_blocks = max(1, round(len(split.candidates) / options.block_size))
        self.steps = -(-num_blocks // options.step_blocks)
        self.length = -(-_FIRST_STEPS // self.steps)
        self.max_epochs = options.max_iter
        if len(split.val) == 0:
            self.length = self.max_epochs = min(
                self.max_epochs, _EPOCHS_WITHOUT_VALIDATION
            )
        self.has_converged = False
        self.num_failed = 0
        bar_options = {'desc': name, 'unit': 'step', 'disable': not options.verbose}
        self.bar = tqdm(**bar_options, leave=False)

    @property
    def has_ended(self) -> bool:
        """Return whether there is no further cycle."""
        return self.has_converged or len(self.losses) >= self.max_epochs

    @property
    def num_visits(self) -> int:
        """Return how often a row was in a step."""
        return len(self.losses) * len(self.split.train)

    def run_cycle(self, stop: threading.Event | None = None) -> None:
        """Train for a cycle, and compute the loss of the held-back rows.

        Raises:
            InterruptedError: If the event is set.
            ValueError: If the loss is not finite.
        """
        # A rest too short for the next cycle prolongs this one.
        num_left = self.max_epochs - len(self.losses)
        length = num_left if num_left < 2 * self.length else self.length
        self.bar.total = self.steps * (len(self.losses) + length)
        for epoch in range(length):
            self.losses.append(self._run_epoch(epoch, length, stop))
        value = self.losses[-1]
        if len(self.split.val) > 0:
            value = loss_of(self.average.module, self.table, self.val)
        self.bar.set_postfix(loss=f'{value:.4f}', refresh=False)
        is_number = self.table.y.is_floating_point()
        unit = 0.0 if is_number else _MIN_CLASS_LOSS
        num_steps = len(self.losses) * self.steps
        progress = min(
            1.0, max(self.num_visits / _LONG_VISITS, num_steps / _LONG_STEPS)
        )
        min_gain = _MIN_GAIN * progress * max(self.best, unit)
        self.num_failed += 1
        if not self.cycles or self.best - value >= min_gain:
            self.num_failed = 0
        # One that hardly fits its rows may fail, too.
        may_fail = progress < 0.5 or self.losses[-1] > _UNDERFIT * value
        self.has_converged = self.num_failed > int(may_fail)
        self.has_converged |= is_number and value < _MIN_SQUARED_ERROR
        if value < self.best:
            self.best = value
            self.state = deepcopy(self.average.module.state_dict())
        self.cycles.append(value)
        self.length *= 2

    def _run_epoch(
        self, epoch: int, length: int, stop: threading.Event | None
    ) -> float:
        """Run an epoch of a cycle of some length; return the loss."""
        total = 0.0
        _set_rates(self.optimizers, epoch / length)
        steps = _steps(
            *(self.model, self.table, self.split, self.options),
            *(self.optimizers, self.generator),
        )
        try:
            for step, loss in enumerate(steps, 1):
                self.average.update_parameters(self.model)
                total += loss
                _set_rates(self.optimizers, (epoch + step / self.steps) / length)
                self.bar.update()
                if stop is not None and stop.is_set():
                    raise InterruptedError
        except ValueError:  # After the first step, keys that are not finite.
            if total == 0 and not self.losses:
                raise
            total = math.nan
        if not math.isfinite(total):
            raise ValueError(
                f'the loss of epoch {len(self.losses) + 1} is {total}: lower '
                f"'learning_rate' (got {self.options.learning_rate})"
            )
        return total

    def finish(self) -> TableNet:
        """Return the network with the averaged parameters of its best cycle."""
        self.model.load_state_dict(self.state)
        # Without validation rows there is nothing to converge to.
        self.has_converged |= self.max_epochs < self.options.max_iter
        self.average = None
        self.optimizers = []
        self.state = {}
        return self.model.eval()


def _steps(
    model: TableNet,
    table: Table,
    split: RowSplit,
    options: Any,
    optimizers: list[Any],
    generator: torch.Generator,
) -> Iterator[float]:
    """Run the steps of an epoch; yield the share of each in the loss of the epoch."""
    blocks = _make_blocks(model, table, split, options, generator)
    model.train()
    weight = torch.zeros_like(table.weight)
    weight[split.train] = table.weight[split.train] / table.weight[split.train].mean()
    for start in range(0, len(blocks), options.step_blocks):
        step_blocks = blocks[start : start + options.step_blocks]
        rows = torch.cat(step_blocks)
        sizes = torch.tensor([len(block) for block in step_blocks], device=rows.device)
        row_mask = {
            'batch': torch.arange(
                len(step_blocks), device=rows.device
            ).repeat_interleave(sizes),
            'group': None if table.group is None else table.group[rows],
            'order': None if table.order is None else table.order[rows],
        }
        with fast_products(rows.device):
            out = model(
                table.take(rows), table.known_y[rows], **row_mask, generator=generator
            )
        loss = losses_of(out.float(), table.y[rows]) @ weight[rows] / len(rows)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        yield float(loss.detach()) * len(rows) / len(split.train)


@torch.no_grad()
def _make_blocks(
    model: TableNet,
    table: Table,
    split: RowSplit,
    options: Any,
    generator: torch.Generator,
) -> list[Tensor]:
    """Divide possible neighbours into blocks of near rows, in random order."""
    rows = split.candidates
    device = generator.device
    if model.graph == 'none':
        rows = split.train
        order = rows[torch.randperm(len(rows), generator=generator, device=device)]
        return list(order.tensor_split(max(1, round(len(rows) / options.block_size))))
    with fast_products(device):
        keys = [
            model.keys(table.take(block_rows)).float()
            for block_rows in rows.split(_BLOCK)
        ]
    blocks = near_blocks(torch.cat(keys), options.block_size, generator)
    order = torch.randperm(len(blocks), generator=generator, device=device)
    return [rows[blocks[i]] for i in order.tolist()]


@torch.no_grad()
def _start_null(
    model: TableNet, table: Table, split: RowSplit, generator: torch.Generator
) -> None:
    """Start the null neighbour with about an eighth of the weight of a block."""
    if model.graph == 'none':
        return
    sampler = model.neighbours.sampler
    if (null := sampler.null_score) is None:
        return
    keys = model.keys(table.take(split.candidates[:_BLOCK]))
    block = keys[near_blocks(keys, 256, generator)[0]]
    score = sampler.similarity.pair_scores(block, sampler.factor).rows()
    null.copy_(score.fill_diagonal_(-torch.inf).logsumexp(1).median() - 2)


def _make_optimizers(model: TableNet, options: Any) -> list[Any]:
    """Optimize matrices by Muon, and vectors, scalars and embeddings by AdamW."""
    matrices = []
    vectors = []
    scalars = []
    for name, param in model.named_parameters():
        if param.dim() == 0:
            scalars.append((name, param))
        elif (
            min(param.shape) < _MIN_MUON_SIDE or param.dim() != 2 or 'periodic' in name
        ):
            vectors.append(param)
        else:
            matrices.append(param)
    rate = options.learning_rate
    decay = options.weight_decay
    groups: list[dict[str, Any]] = [{'params': vectors, 'weight_decay': decay}]
    for name, param in scalars:
        share = _NULL_RATE if 'null_score' in name else 1
        groups.append({'params': [param], 'weight_decay': 0.0, 'lr': share * rate})
    optimizers: list[Any] = [torch.optim.AdamW(groups, lr=rate)]
    if matrices:
        muon = torch.optim.Muon(
            matrices,
            lr=_MATRIX_RATE * rate,
            weight_decay=decay,
            adjust_lr_fn='match_rms_adamw',
        )
        optimizers.append(muon)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group['peak'] = group['lr']
    return optimizers


def _set_rates(optimizers: list[Any], progress: float) -> None:
    """Set the learning rates in a cycle: a linear rise, then a cosine to zero."""
    if progress < _WARMUP:
        share = _START_RATE + (1 - _START_RATE) * progress / _WARMUP
    else:
        share = 0.5 + 0.5 * math.cos(math.pi * (progress - _WARMUP) / (1 - _WARMUP))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group['lr'] = share * group['peak']


@torch.no_grad()
def outputs_of(model: TableNet, table: Table, split: RowSplit) -> tuple[Tensor, Tensor]:
    """Compute the outputs of held-back rows, whose neighbours are the candidates.

    Also returns distances to the nearest candidate of some, if the graph is learned.
    """
    model.eval()
    if model.graph == 'learned':
        model.index(table.take(split.candidates), table.known_y[split.candidates])
    blocks = split.val.split(_BLOCK)
    out = torch.cat([model(table.take(block)) for block in blocks])
    distance = out.new_zeros(0)
    if model.graph == 'learned':
        probed = split.val[:_MAX_DISTANCES]
        distance = model.distance_to_sources(table.take(probed))
    model.clear_index()
    return out, distance


def loss_of(model: TableNet, table: Table, split: RowSplit) -> float:
    """Compute the weighted mean loss of held-back rows."""
    weight = table.weight[split.val]
    out, _ = outputs_of(model, table, split)
    return float(losses_of(out, table.y[split.val]) @ weight / weight.sum())


def subsample(split: RowSplit, seed: int) -> RowSplit:
    """Subsample many rows for validation."""
    generator = torch.Generator().manual_seed(seed)

    def sample(rows: Tensor, max_rows: int) -> Tensor:
        if len(rows) <= max_rows:
            return rows
        indices = torch.randperm(len(rows), generator=generator)[:max_rows]
        return rows[indices.sort().values.to(rows.device)]

    val = split.val
    candidates = split.candidates
    return split._replace(
        val=sample(val, _MAX_VAL_ROWS), candidates=sample(candidates, _MAX_CANDIDATES)
    )


@torch.no_grad()
def _average(averages: Any, parameters: Any, count: Any) -> None:
    """Update running means; early steps decay faster."""
    decay = min(_DECAY, (1 + int(count)) / (10 + int(count)))
    torch._foreach_lerp_(averages, parameters, 1 - decay)
