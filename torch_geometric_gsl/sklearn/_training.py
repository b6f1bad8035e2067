"""Train a network on a table, in blocks of near rows that see each other."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel
from tqdm import tqdm

from torch_geometric_gsl.nn.models.table_net import TableNet
from torch_geometric_gsl.sklearn._optimizers import make_optimizers, set_rates
from torch_geometric_gsl.sklearn._runtime import fast_products
from torch_geometric_gsl.sklearn._splits import (
    RowSplit,
    Table,
    near_blocks,
    subsample,
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
# Distances of this many held-back rows tell which rows are far.
_MAX_DISTANCES = 2_000
# Rows predicted at once.
_BLOCK = 2048
# The decay of the running average of the parameters.
_DECAY = 0.99
# The number of epochs without validation rows.
_EPOCHS_WITHOUT_VALIDATION = 30


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
        # Weights in the loss, of mean 1 among the training rows.
        train_weight = table.weight[split.train]
        self.weight = torch.zeros_like(table.weight)
        self.weight[split.train] = train_weight / train_weight.mean()
        self._start_null()
        self.average: Any = AveragedModel(model, multi_avg_fn=_average).eval()
        self.optimizers = make_optimizers(model, options)
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
            self.max_epochs = min(self.max_epochs, _EPOCHS_WITHOUT_VALIDATION)
            self.length = self.max_epochs
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
        value = self.losses[-1] if len(self.split.val) == 0 else self._val_loss()
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
        set_rates(self.optimizers, epoch / length)
        try:
            for step, loss in enumerate(self._steps(), 1):
                self.average.update_parameters(self.model)
                total += loss
                set_rates(self.optimizers, (epoch + step / self.steps) / length)
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

    def _steps(self) -> Iterator[float]:
        """Run the steps of an epoch; yield the share of each in its loss."""
        table = self.table
        device = self.generator.device
        blocks = self._make_blocks()
        self.model.train()
        for start in range(0, len(blocks), self.options.step_blocks):
            step_blocks = blocks[start : start + self.options.step_blocks]
            rows = torch.cat(step_blocks)
            sizes = torch.tensor([len(block) for block in step_blocks], device=device)
            batch = torch.arange(len(sizes), device=device).repeat_interleave(sizes)
            with fast_products(device):
                out = self.model(
                    table.take(rows),
                    table.known_y[rows],
                    batch=batch,
                    group=None if table.group is None else table.group[rows],
                    order=None if table.order is None else table.order[rows],
                    generator=self.generator,
                )
            losses = losses_of(out.float(), table.y[rows])
            loss = losses @ self.weight[rows] / len(rows)
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in self.optimizers:
                optimizer.step()
            yield float(loss.detach()) * len(rows) / len(self.split.train)

    @torch.no_grad()
    def _make_blocks(self) -> list[Tensor]:
        """Divide possible neighbours into blocks of near rows, in random order."""
        random: dict[str, Any] = {
            'generator': self.generator,
            'device': self.generator.device,
        }
        size = self.options.block_size
        if self.model.graph == 'none':
            rows = self.split.train
            rows = rows[torch.randperm(len(rows), **random)]
            return list(rows.tensor_split(max(1, round(len(rows) / size))))
        rows = self.split.candidates
        with fast_products(self.generator.device):
            keys = [
                self.model.keys(self.table.take(block_rows)).float()
                for block_rows in rows.split(_BLOCK)
            ]
        blocks = near_blocks(torch.cat(keys), size, self.generator)
        order = torch.randperm(len(blocks), **random)
        return [rows[blocks[i]] for i in order.tolist()]

    @torch.no_grad()
    def _start_null(self) -> None:
        """Start the null neighbour with about an eighth of the weight of a block."""
        if self.model.graph == 'none':
            return
        sampler = self.model.neighbours.sampler
        if (null := sampler.null_score) is None:
            return
        keys = self.model.keys(self.table.take(self.split.candidates[:_BLOCK]))
        block = keys[near_blocks(keys, 256, self.generator)[0]]
        score = sampler.similarity.pair_scores(block, sampler.factor).rows()
        null.copy_(score.fill_diagonal_(-torch.inf).logsumexp(1).median() - 2)

    def _val_loss(self) -> float:
        """Compute the weighted mean loss of held-back rows."""
        rows = self.val.val
        weight = self.table.weight[rows]
        out, _ = outputs_of(self.average.module, self.table, self.val)
        return float(losses_of(out, self.table.y[rows]) @ weight / weight.sum())

    def finish(self) -> TableNet:
        """Return the network with the averaged parameters of its best cycle."""
        self.model.load_state_dict(self.state)
        # Without validation rows there is nothing to converge to.
        self.has_converged |= self.max_epochs < self.options.max_iter
        self.average = None
        self.optimizers = []
        self.state = {}
        return self.model.eval()

    def finish_and_predict(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Finish; return outputs of the held-back rows, and distances of some."""
        model = self.finish()
        # All held-back rows, but not more candidates than in training.
        split = self.val._replace(val=self.split.val)
        if len(split.val) == 0:
            return np.empty((0, model.out_channels)), np.empty(0)
        out, distance = outputs_of(model, self.table, split)
        out = out if self.table.y.is_floating_point() else out.softmax(dim=1)
        return out.double().cpu().numpy(), distance.double().cpu().numpy()


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


@torch.no_grad()
def _average(averages: Any, parameters: Any, count: Any) -> None:
    """Update running means; early steps decay faster."""
    decay = min(_DECAY, (1 + int(count)) / (10 + int(count)))
    torch._foreach_lerp_(averages, parameters, 1 - decay)
