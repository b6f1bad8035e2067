"""Train one network on the rows of a table."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from torch_geometric_gsl.baselines.knn_gcn import KNNGCN
from torch_geometric_gsl.baselines.mlp import MLPClassifier
from torch_geometric_gsl.nn.models.gsl_net import GSLNet
from torch_geometric_gsl.nn.nearest_neighbours import near_similarity
from torch_geometric_gsl.ops.local_random import DrawsFrom

#: What the rows of a table may be joined by.
GRAPHS = ('learned', 'nearest', 'none')
# Between two looks at validation.
EVAL_EVERY = 2


class Table(NamedTuple):
    """Rows, what is known of them, and which of them serve for what.

    Args:
        x (torch.Tensor): The rows.
        y (torch.Tensor): The targets of all rows, read where they are known.
        weight (torch.Tensor): What each row counts.
        train (torch.Tensor): The rows to train on.
        val (torch.Tensor): The rows that are held back; there may be none.
        candidates (torch.Tensor, optional): The edges that a learned graph weighs; all
            pairs if :obj:`None`. (default: :obj:`None`)
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    train: Tensor
    val: Tensor
    candidates: Tensor | None = None


class Result(NamedTuple):
    """A trained network.

    Args:
        graph (str): What joins its rows.
        model (torch.nn.Module): The network, of its best epoch.
        loss (float): Its loss on rows that are held back, or else in training.
        num_epochs (int): The number of epochs that were run.
    """

    graph: str
    model: Any
    loss: float
    num_epochs: int


def make_network(
    graph: str,
    num_outputs: int,
    task: str,
    table: Table,
    p: Any,
    generator: torch.Generator | None = None,
) -> Any:
    """Build the network of a graph from the parameters of an estimator.

    Its weights are drawn from a generator, or serve nobody, as they will be loaded.
    """
    with DrawsFrom(torch.Generator() if generator is None else generator):
        return _network(graph, num_outputs, task, table, p)


def _network(graph: str, num_outputs: int, task: str, table: Table, p: Any) -> Any:
    num_nodes, num_features = table.x.shape
    k = max(1, min(p.k, num_nodes - 1))
    layers = num_features, p.hidden_channels, p.num_layers, num_outputs
    options: dict[str, Any] = {'dropout': float(p.dropout), 'task': task}
    if num_nodes == 1 or graph == 'none':
        return MLPClassifier(*layers, **options)
    if graph == 'nearest':
        return KNNGCN(*layers, k=k, root_weight=True, cached=True, **options)
    return GSLNet(
        *layers,
        similarity=near_similarity(p.similarity, num_features),
        compare='input',
        scale='learned',
        initial_scale=float(p.initial_scale),
        tau=float(p.tau),
        k=k,
        loop=False,
        **options,
    )


def losses(out: Tensor, y: Tensor, task: str) -> Tensor:
    """Return the loss of each row."""
    if task == 'classification':
        return F.cross_entropy(out, y, reduction='none')
    return (out - y).square().mean(dim=1)


def train(
    graph: str, num_outputs: int, task: str, table: Table, p: Any, seed: int
) -> Result:
    """Train until rows that are held back have not improved for some time."""
    generator = torch.Generator().manual_seed(seed)
    args = graph, num_outputs, task, table, p
    model = make_network(*args, generator).to(table.x)
    if table.x.device.type != 'cpu':
        generator = torch.Generator(table.x.device).manual_seed(seed)
    shape: dict[bool, list[Tensor]] = {True: [], False: []}
    for parameter in model.parameters():
        shape[parameter.dim() > 0].append(parameter)
    groups = [
        {'params': shape[True], 'weight_decay': float(p.weight_decay)},
        # Zero is no better a value of the scale.
        {'params': shape[False], 'weight_decay': 0.0},
    ]
    optimizer = torch.optim.Adam(groups, lr=float(p.learning_rate))
    best, state, improved, epoch = float('inf'), None, 0, 0
    bar = tqdm(range(p.max_iter), graph, disable=not p.verbose, leave=False)
    for epoch in bar:
        model.train()
        optimizer.zero_grad()
        loss = weighted_loss(model, table, table.train, task, generator)
        loss.backward()
        optimizer.step()
        if (epoch + 1) % EVAL_EVERY and epoch + 1 < p.max_iter:
            continue
        has_val = table.val.numel() > 0
        value = validate(model, table, task) if has_val else float(loss.detach())
        bar.set_postfix(loss=f'{value:.3f}', refresh=False)
        if value < best:
            best, improved = value, epoch
            state = copy.deepcopy(model.state_dict())
        elif epoch - improved >= p.n_iter_no_change:
            break
    if state is not None:
        model.load_state_dict(state)
    return Result(graph, model.eval(), best, epoch + 1)


def weighted_loss(
    model: Any,
    table: Table,
    rows: Tensor,
    task: str,
    generator: torch.Generator | None = None,
) -> Tensor:
    weight = table.weight[rows]
    edges = table.candidates if isinstance(model, GSLNet) else None
    out = model(table.x, edges, generator=generator)
    loss = losses(out[rows], table.y[rows], task)
    return (loss * weight).sum() / weight.sum()


@torch.no_grad()
def validate(model: Any, table: Table, task: str) -> float:
    model.eval()
    return float(weighted_loss(model, table, table.val, task))


def choose(graphs: tuple[str, ...], run: Callable[[str], Result]) -> Result:
    """Train with each graph and return what validation prefers."""
    return min(map(run, graphs), key=lambda result: result.loss)
