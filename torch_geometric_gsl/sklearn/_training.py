"""Train a network on a table, in batches with pools of candidates."""

from __future__ import annotations

import math
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
from torch_geometric_gsl.sklearn._rows import to_tensor

#: The graphs of the rows of a table.
GRAPHS = ('learned', 'nearest', 'none')
AUTO = 'auto'
# The least number of steps without improvement before training stops.
_LEAST_STEPS = 320
# Networks have this width and dropout from these numbers of rows on.
_SIZES = ((0, 64, 0.3), (1000, 128, 0.2), (4000, 192, 0.2))
# Below these numbers of rows, there are this many networks.
_FEW_ROWS, _MEMBERS = 1000, 4
# The largest numbers of rows and of candidates in validation.
_MOST_VALIDATED, _MOST_CANDIDATES = 20_000, 50_000
# Rows predicted at once.
_BLOCK = 2048
# The largest share of the rows in a pool.
_POOL_SHARE = 0.4
# The decay of the running average of the parameters.
_DECAY = 0.998
# Training steps without validation rows.
_STEPS_WITHOUT_VALIDATION = 300
# Validation must improve by this share of the loss to prolong training, or for
# classes by this number.
_TOLERANCE, _TOLERANCE_OF_CLASSES = 1e-3, 1e-3


def options_of(estimator: Any, num_rows: int) -> SimpleNamespace:
    """Return the parameters of an estimator, with sizes for its table."""
    options = SimpleNamespace(**estimator.get_params(deep=False))
    _, hidden, dropout = [size for size in _SIZES if size[0] <= num_rows][-1]
    if options.hidden_channels == AUTO:
        options.hidden_channels = hidden
    if options.dropout == AUTO:
        options.dropout = dropout
    if options.n_members == AUTO:
        options.n_members = _MEMBERS if num_rows < _FEW_ROWS else 1
    if options.batch_size == AUTO:
        options.batch_size = max(16, min(512, num_rows // 16))
    # Rows of a batch do not see each other: leave others as neighbours.
    options.batch_size = max(1, min(options.batch_size, num_rows // 2))
    least = -(-_LEAST_STEPS // -(-num_rows // options.batch_size))
    options.n_iter_no_change = max(options.n_iter_no_change, least)
    return options


class Table(NamedTuple):
    """Rows, dense or SciPy sparse, with targets and a search for nearest rows.

    Labels sent as messages are -1 or NaN if unknown.
    """

    x: Any
    y: Tensor
    known_y: Tensor
    weight: Tensor
    nearest: Any = None

    def take(self, rows: Tensor) -> Tensor:
        """Return some rows as one tensor."""
        if isinstance(self.x, Tensor):
            return self.x[rows]
        return to_tensor(self.x[rows.cpu().numpy()], rows.device, torch.float32)


class Split(NamedTuple):
    """Indices of rows: of the loss, possible neighbours, and held back."""

    train: Tensor
    candidates: Tensor
    val: Tensor


class Result(NamedTuple):
    """A trained network with the averaged parameters of its best epoch.

    The loss is that of the held-back rows, or of training if there are none. A network
    that is no better than a constant predicts it.
    """

    graph: str
    model: TableNet
    loss: float
    losses: list[float]
    scores: list[float]
    has_converged: bool
    is_constant: bool = False


def losses_of(out: Tensor, y: Tensor) -> Tensor:
    """Compute the loss of each row: cross-entropy for classes, else squared error."""
    if not y.is_floating_point():
        return F.cross_entropy(out, y, reduction='none')
    return (out - y).square().mean(dim=1)


def loss_of(out: Tensor, table: Table, rows: Tensor) -> float:
    """Compute the weighted mean loss of the outputs of some rows."""
    weight = table.weight[rows]
    return float(losses_of(out, table.y[rows]) @ weight / weight.sum())


def constant_output(table: Table, rows: Tensor) -> Tensor:
    """Compute the output with the least loss that is equal for all rows."""
    y, weight = table.y[rows], table.weight[rows] / table.weight[rows].sum()
    if y.is_floating_point():
        return weight @ y
    share = torch.bincount(y, weight, minlength=int(table.y.amax()) + 1)
    # A class that only held-back rows have remains possible.
    return share.clamp(min=0.5 / len(rows)).log()


@torch.no_grad()
def set_constant(model: TableNet, out: Tensor) -> None:
    """Make a network predict the same output for all rows."""
    model.head.weight.zero_()
    model.head.bias.copy_(out)


def answer(
    model: TableNet,
    table: Table,
    rows: Tensor,
    candidates: Tensor,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Run a network on some rows, with others as possible neighbours."""
    x, given = table.take(rows), None
    if model.graph == 'none':
        out: Tensor = model(x, generator=generator)
        return out
    if model.graph == 'given':
        source, distance = table.nearest.of_rows(rows)
        candidates, place = source.unique(return_inverse=True)
        given = place.view_as(source), distance
    pair = table.take(candidates), x
    out = model(pair, table.known_y[candidates], given=given, generator=generator)
    return out


def train(
    model: TableNet, graph: str, table: Table, split: Split, options: Any, seed: int
) -> Result:
    """Train a network, with early stopping on held-back rows.

    The seed determines batches, pools and dropout.
    """
    generator = torch.Generator(table.y.device).manual_seed(seed)
    optimizer = torch.optim.AdamW(_groups(model, options), lr=options.learning_rate)
    average: Any = AveragedModel(model, multi_avg_fn=_average).eval()
    best = anchor = float('inf')
    state, patience = model.state_dict(), options.n_iter_no_change
    least = 0.0 if table.y.is_floating_point() else _TOLERANCE_OF_CLASSES
    losses: list[float] = []
    scores: list[float] = []
    looked_at = sampled(split, seed)
    steps = -(-len(split.train) // options.batch_size)
    improved = epoch = 0
    most = options.max_iter
    if len(split.val) == 0:  # The training loss falls for long.
        most = min(most, -(-_STEPS_WITHOUT_VALIDATION // steps))
    shown = {'desc': graph, 'unit': 'step', 'disable': not options.verbose}
    with tqdm(**shown, leave=False) as bar:
        for epoch in range(most):
            bar.total = steps * min(most, improved + patience + 1)
            total = 0.0
            for loss in _steps(model, table, split, options, optimizer, generator):
                average.update_parameters(model)
                total += loss / len(split.train)
                bar.update()
            if not math.isfinite(total):
                raise ValueError(
                    f"the loss of epoch {epoch + 1} is {total}: lower 'learning_rate' "
                    f'(got {options.learning_rate})'
                )
            losses.append(total)
            value = total
            if len(split.val) > 0:
                value, score = validate(average.module, table, looked_at)
                scores.append(score)
            bar.set_postfix(loss=f'{value:.4f}', refresh=False)
            if value < best:
                best, state = value, deepcopy(average.module.state_dict())
            if best < min(anchor * (1 - _TOLERANCE), anchor - least):
                anchor, improved = best, epoch
            if epoch - improved >= patience:
                break
    model.load_state_dict(state)
    has_converged = epoch - improved >= patience or most < options.max_iter
    return Result(graph, model.eval(), best, losses, scores, has_converged)


def _steps(
    model: TableNet,
    table: Table,
    split: Split,
    options: Any,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
) -> Iterator[float]:
    """Run the steps of an epoch; yield the loss of each batch times its rows."""
    model.train()
    mean_weight = table.weight[split.train].mean()
    for batch, pool in _batches(split, options, generator):
        weight = table.weight[batch] / mean_weight
        out = answer(model, table, batch, pool, generator)
        loss = (losses_of(out, table.y[batch]) * weight).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield float(loss.detach()) * len(batch)


@torch.no_grad()
def validate(model: TableNet, table: Table, split: Split) -> tuple[float, float]:
    """Compute the mean loss and the score of held-back rows."""
    rows, candidates = split.val, split.candidates
    blocks = rows.split(_BLOCK)
    if model.graph == 'learned':
        model.index(table.take(candidates), table.known_y[candidates])
        outputs = [model(table.take(block)) for block in blocks]
        model.clear_index()
    else:
        outputs = [answer(model, table, block, candidates) for block in blocks]
    out, y, weight = torch.cat(outputs), table.y[rows], table.weight[rows]
    loss = loss_of(out, table, rows)
    if not y.is_floating_point():
        return loss, float((out.argmax(dim=1) == y).float() @ weight / weight.sum())
    spread = loss_of(constant_output(table, rows).expand_as(out), table, rows)
    return loss, 1 - loss / spread if spread > 0 else 0.0


def sampled(split: Split, seed: int) -> Split:
    """Subsample many rows for validation."""
    generator = torch.Generator().manual_seed(seed)

    def some(rows: Tensor, most: int) -> Tensor:
        if len(rows) <= most:
            return rows
        chosen = torch.randperm(len(rows), generator=generator)[:most]
        return rows[chosen.sort().values.to(rows.device)]

    val, candidates = split.val, split.candidates
    return split._replace(
        val=some(val, _MOST_VALIDATED), candidates=some(candidates, _MOST_CANDIDATES)
    )


def _batches(
    split: Split, options: Any, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of an epoch, each with a pool of other rows."""
    device = generator.device
    order, everyone = (
        rows[torch.randperm(len(rows), generator=generator, device=device)]
        for rows in (split.train, split.candidates)
    )
    # Fewer candidates than rows: a step of other neighbours each time regularises.
    most = options.batch_size + int(_POOL_SHARE * len(everyone))
    size = min(options.pool_size, most, len(everyone))
    is_in_batch = torch.zeros(int(everyone.amax()) + 1, dtype=torch.bool, device=device)
    for batch in order.split(options.batch_size):
        # A window of a random order, which contains the batch.
        start = torch.randint(len(everyone), (1,), generator=generator, device=device)
        stop = int(start) + size
        pool = everyone[int(start) : stop]
        if stop > len(everyone):
            pool = torch.cat([pool, everyone[: stop - len(everyone)]])
        is_in_batch[batch] = True
        pool = pool[~is_in_batch[pool]]
        is_in_batch[batch] = False
        yield batch, pool


def _groups(model: TableNet, options: Any) -> list[dict[str, Any]]:
    """Group the parameters for weight decay, without scalars."""
    parameters = [*model.parameters()]
    return [
        {
            'params': [p for p in parameters if p.dim() > 0],
            'weight_decay': options.weight_decay,
        },
        {'params': [p for p in parameters if p.dim() == 0], 'weight_decay': 0.0},
    ]


@torch.no_grad()
def _average(averages: Any, parameters: Any, count: Any) -> None:
    """Update running means; early steps decay faster."""
    decay = min(_DECAY, (1 + int(count)) / (10 + int(count)))
    torch._foreach_lerp_(averages, parameters, 1 - decay)
