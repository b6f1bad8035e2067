"""Methods on a noisy given graph, and their training."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.utils import to_torch_csr_tensor

from reproduction.baselines import IDGL, MLPClassifier
from reproduction.baselines.given_graph import GivenGraphNet, NoGraphNet, gat, gcn, mean
from reproduction.training import HIDDEN_LABEL
from torch_geometric_gsl import GSLNet

#: Every number that results depend on.
SETTING: dict[str, Any] = {
    'hidden_channels': 32,
    'num_layers': 2,
    'lr': 0.01,
    'epochs': 300,
    'patience': 50,
    'eval_every': 2,
    'heads': 4,
    'k': 5,
    'tau': 1.0,
    # IDGL's recipe for data with a graph.
    'idgl': {'k': 1, 'skip_weight': 0.8, 'update_weight': 0.7},
    'dropouts': [0.5, 0.8],
    'weight_decays': [1e-4, 5e-4],
    'initial_scales': [2.0, 5.0],
    # Initial cosine of the null neighbour.
    'null_similarity': 0.15,
    # For methods that tune the initial value of a learned scale instead.
    'weight_decay': 5e-4,
    'revision': 1,
}


class Method(NamedTuple):
    """A row of the table.

    Args:
        title: Its name in the table.
        kind: The type of its model: `given`, `learned`, `idgl` or `mlp`.
        options: Arguments that define the method.
        axis: The setting in which its trainings differ, besides dropout and, if the
            options list some, weight decay.
    """

    title: str
    kind: str
    options: dict[str, Any] = {}  # noqa: RUF012
    axis: str = 'weight_decay'


OURS: dict[str, Any] = {
    'similarity': 'linear',
    'compare': 'input',
    'scale': 'learned',
    'null': True,
}
#: Fixed scales: the first weights neighbours almost equally, the second does not.
# With both, validation decides whether edges are weighted at all.
FIXED: dict[str, Any] = {
    'scales': [1.0, 20.0],
    'weight_decays': [1e-4, 5e-4],
    'dropouts': [0.5],
    'null_similarity': 0.25,
}
ROOT: dict[str, Any] = {'has_root': True}
#: Number of nearest nodes per node that are added to the given graph.
NEAR: dict[str, Any] = {'num_nearest': 5}
METHODS = {
    'mlp': Method('MLP', 'mlp'),
    'gcn': Method('GCN', 'given', {'conv': 'gcn'}),
    'gcn_root': Method('GCN, root weight', 'given', {'conv': 'gcn'} | ROOT),
    'gat': Method('GATv2', 'given', {'conv': 'gat'}),
    'mean': Method('mean, root weight', 'given', {'conv': 'mean'} | ROOT),
    'uniform': Method('uniform draws', 'learned', {'similarity': 'uniform'}),
    'idgl': Method('IDGL', 'idgl'),
    'ours': Method('cosine, null neighbour', 'learned', OURS, 'initial_scale'),
    'ours_fixed': Method(
        'cosine of fixed scale, null neighbour', 'learned', OURS | FIXED, 'scale'
    ),
    'mean_near': Method(
        'mean, root weight, 5 nearest added', 'given', {'conv': 'mean'} | ROOT | NEAR
    ),
    'ours_near': Method(
        'cosine, null neighbour, 5 nearest added',
        'learned',
        OURS | NEAR,
        'initial_scale',
    ),
}
CONVS = {'gcn': gcn, 'gat': gat, 'mean': mean}


def choices(method: Method, setting: dict[str, Any]) -> list[dict[str, float]]:
    """List the settings of the trainings of a method, the same number for each."""
    names = dict.fromkeys(['dropout', method.axis])
    if 'weight_decays' in method.options:
        names['weight_decay'] = None
    values = [method.options.get(f'{name}s') or setting[f'{name}s'] for name in names]
    return [dict(zip(names, each, strict=True)) for each in itertools.product(*values)]


def build(
    method: Method, data: Data, choice: dict[str, float], setting: dict[str, Any]
) -> Any:
    """Build the model of a training."""
    dropout = choice['dropout']
    classes = int(data['y'].max()) + 1
    layers = setting['num_layers']
    hidden = setting['hidden_channels']
    sizes = (data.num_features, hidden, layers, classes)
    if method.kind == 'mlp':
        return NoGraphNet(MLPClassifier(*sizes, dropout=dropout))
    if method.kind == 'idgl':
        return IDGL(*sizes, dropout=dropout, cached=True, **setting['idgl'])
    if method.kind == 'learned':
        options = {'k': setting['k'], 'tau': setting['tau']} | method.options
        for name in ('num_nearest', *FIXED):
            options.pop(name, None)
        null = method.options.get('null_similarity', setting['null_similarity'])
        for name in ('scale', 'initial_scale'):
            if name in choice:
                options |= {name: choice[name], 'initial_null': choice[name] * null}
        return GSLNet.paper(*sizes, dropout=dropout, **sampler_options(options))
    widths = [data.num_features, *[hidden] * (layers - 1), classes]
    return GivenGraphNet(
        CONVS[method.options['conv']],
        widths,
        heads=setting['heads'],
        has_root=method.options.get('has_root', False),
        dropout=dropout,
    )


def sampler_options(options: dict[str, Any]) -> dict[str, Any]:
    """Convert options to their current names; finished runs keep the old ones."""
    now = dict(options)
    if now.pop('compare', None) == 'input':
        now['z_channels'] = -1
    null, scale = now.pop('initial_null', 0.0), now.pop('initial_scale', 1.0)
    if now.pop('null', False):
        now['null_score'] = null
    if now.get('scale') == 'learned':
        now |= {'scale': scale, 'train_scale': True}
    return now


class Training(NamedTuple):
    """The best epoch of a training, by validation, and its prediction of all nodes."""

    val: float
    choice: dict[str, float]
    epoch: int
    prediction: Tensor
    loss: float = math.inf

    def beats(self, best: Training, *, breaks_ties: bool = False) -> bool:
        """Return whether it is better; if `breaks_ties`, the loss breaks ties."""
        is_tie = breaks_ties and self.val == best.val
        return self.val > best.val or (is_tie and self.loss < best.loss)


def score_best(
    candidates: Iterable[Training], data: Data, *, breaks_ties: bool = False
) -> dict[str, Any]:
    """Return the result of the best training, the only one to read test labels."""
    best: Training | None = None
    for training in candidates:
        if best is None or training.beats(best, breaks_ties=breaks_ties):
            best = training
    if best is None or best.epoch < 0:  # No epoch was evaluated.
        return {'val': None, 'test': None}
    hit = (best.prediction == data['y'])[data['test_mask']]
    scores = {'val': best.val, 'test': float(hit.double().mean())}
    return {**scores, 'choice': best.choice, 'epoch': best.epoch}


def hide_test(data: Data) -> Data:
    """Return the data without the labels of test nodes."""
    hidden = copy.copy(data)
    hidden.y = data['y'].masked_fill(data['test_mask'], HIDDEN_LABEL)
    return hidden


def trainings(
    method: Method, data: Data, edge_index: Tensor, seed: int, setting: dict[str, Any]
) -> Iterator[Training]:
    """Yield the trainings of a method; `data` has no labels of test nodes."""
    graph = as_layers_take(method, edge_index, int(data['y'].numel()))
    for choice in choices(method, setting):
        seed_everything(seed)
        model = build(method, data, choice, setting)
        decay = choice.get('weight_decay', setting['weight_decay'])
        yield train(model, data, graph, choice, decay, setting)


def as_layers_take(method: Method, edge_index: Tensor, num_nodes: int) -> Any:
    """Return the graph as a matrix for layers that multiply by it, else its edges."""
    if method.options.get('conv') not in ('gcn', 'mean'):
        return edge_index
    return to_torch_csr_tensor(edge_index.flip(0), size=(num_nodes, num_nodes))


def train(
    model: Any,
    data: Data,
    edge_index: Any,
    choice: dict[str, float],
    weight_decay: float,
    setting: dict[str, Any],
) -> Training:
    """Train a model with early stopping on the validation nodes."""
    groups: list[dict[str, Any]] = [
        {'params': [p for p in model.parameters() if p.dim()]},
        # No decay of the scale and the null score: zero is not a better value.
        {'params': [p for p in model.parameters() if not p.dim()], 'weight_decay': 0},
    ]
    optimizer = torch.optim.Adam(groups, setting['lr'], weight_decay=weight_decay)
    best = Training(-1.0, choice, -1, torch.zeros_like(data['y']))
    least = float('inf')
    improved = 0
    for epoch in range(setting['epochs']):
        model.train()
        optimizer.zero_grad()
        objective = loss_of(model, data, edge_index)
        if not objective.isfinite():  # Diverged: the best epoch remains.
            break
        objective.backward()
        optimizer.step()
        if (epoch + 1) % setting['eval_every']:
            continue
        val, loss, prediction = evaluate(model, data, edge_index)
        if val > best.val or loss < least:
            improved = epoch
        least = min(least, loss)
        training = Training(val, choice, epoch, prediction, loss)
        # With few validation nodes accuracies often tie: the loss breaks ties.
        if training.beats(best, breaks_ties=setting.get('breaks_ties', False)):
            best = training
        if epoch - improved >= setting['patience']:
            break
    return best


def loss_of(model: Any, data: Data, edge_index: Any) -> Tensor:
    mask = data['train_mask']
    if isinstance(model, IDGL | NoGraphNet):  # They may regularise their graph.
        return model.loss(data['x'], data['y'], mask, edge_index=edge_index)
    return F.cross_entropy(model(data['x'], edge_index)[mask], data['y'][mask])


@torch.no_grad()
def evaluate(model: Any, data: Data, edge_index: Any) -> tuple[float, float, Tensor]:
    """Return accuracy and loss of the validation nodes, and all predictions."""
    model.eval()
    out = model(data['x'], edge_index)
    mask = data['val_mask']
    prediction = out.argmax(dim=1)
    hit = (prediction == data['y'])[mask].double().mean()
    return float(hit), float(F.cross_entropy(out[mask], data['y'][mask])), prediction
