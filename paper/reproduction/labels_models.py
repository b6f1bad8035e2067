"""Methods for few labels, and their training."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading
from torch import Tensor
from torch.nn import functional as F
from torch_geometric import seed_everything
from torch_geometric.data import Data

from reproduction.baselines import HESGSL, IDGL, KNNGCN, SLAPS, SUBLIME, MLPClassifier
from reproduction.baselines.given_graph import NoGraphNet
from reproduction.consistent import ConsistentNet
from reproduction.noisy_models import Training, train

#: Every number that results depend on.
SETTING: dict[str, Any] = {
    'hidden_channels': 64,
    'num_layers': 2,
    'lr': 0.01,
    'epochs': 300,
    'patience': 100,
    'eval_every': 4,
    'breaks_ties': True,
    # Encoders are trained on the nearest-neighbour graph, without labels.
    'encoder': {'k': 20, 'channels': 256, 'epochs': 100, 'lr': 0.001},
    'trees': 300,
    'consistent': {'num_candidates': 20, 'node_dropout': 0.5, 'weight_decay': 5e-3},
    'revision': 1,
}


class Method(NamedTuple):
    """A row of the tables.

    Args:
        title: Its name in the tables.
        kind: The way it is trained: `table` (scikit-learn) or `network`.
        choices: Options in which its four trainings differ: two values of two options,
            or four of one.
        is_encoded: If `True`, uses an encoder's output instead of the features.
    """

    title: str
    kind: str
    choices: dict[str, list[Any]]
    is_encoded: bool = False


DECAYS: dict[str, list[Any]] = {'weight_decay': [5e-4, 5e-3]}
DROPOUTS: dict[str, list[Any]] = {'dropout': [0.5, 0.8]}
COSTS: dict[str, list[Any]] = {'C': [1.0, 10.0, 100.0, 1000.0]}
NEIGHBOURS: dict[str, list[Any]] = {'k': [10, 20]}
METHODS = {
    'logreg': Method('logistic regression', 'table', COSTS),
    'random_forest': Method(
        'random forest',
        'table',
        {'max_features': ['sqrt', 0.2], 'min_samples_leaf': [1, 2]},
    ),
    'hist_boosting': Method(
        'gradient boosting',
        'table',
        {'learning_rate': [0.05, 0.2], 'max_iter': [50, 150]},
    ),
    'label_spreading': Method(
        'label spreading', 'table', {'n_neighbors': [7, 20], 'alpha': [0.2, 0.8]}
    ),
    'mlp': Method('MLP', 'network', DROPOUTS | DECAYS),
    'encoder': Method('encoder (DGI)', 'table', COSTS, is_encoded=True),
    'knn_gcn': Method('kNN-GCN, root weight', 'network', NEIGHBOURS | DECAYS),
    'knn_gcn_drop': Method(
        'kNN-GCN, root weight, dropout of features', 'network', NEIGHBOURS | DECAYS
    ),
    'knn_encoder': Method(
        'kNN-GCN on the encoder', 'network', NEIGHBOURS | DECAYS, is_encoded=True
    ),
    'slaps': Method('SLAPS', 'network', {'k': [15, 30]} | DECAYS),
    'sublime': Method('SUBLIME', 'network', {'k': [10, 20]} | DECAYS),
    'hesgsl': Method('HES-GSL', 'network', {'k': [15, 30]} | DECAYS),
    'idgl': Method('IDGL', 'network', {'k': [10, 20]} | DECAYS),
    'nearest': Method(
        'nearest nodes, consistency',
        'network',
        {'num_candidates': [10, 20], 'order': [2, 4]},
    ),
    'uniform': Method(
        'uniform draws, consistency',
        'network',
        {'num_candidates': [10, 20], 'order': [2, 4]},
    ),
    'ours': Method(
        'cosine draws, consistency',
        'network',
        {'initial_scale': [5.0, 10.0], 'order': [2, 4]},
    ),
    'uniform_encoder': Method(
        'encoder on uniform draws', 'table', COSTS, is_encoded=True
    ),
    'ours_encoder': Method(
        'encoder on cosine draws', 'table', COSTS | {'scale': [10.0]}, is_encoded=True
    ),
}
GRAPHS = {'nearest': 'nearest', 'uniform': 'uniform', 'ours': 'drawn'}
NETWORKS: dict[str, Callable[..., Any]] = {
    'mlp': MLPClassifier,
    'knn_gcn': KNNGCN,
    'knn_gcn_drop': KNNGCN,
    'knn_encoder': KNNGCN,
    'slaps': SLAPS,
    'sublime': SUBLIME,
    'hesgsl': HESGSL,
    'idgl': IDGL,
}


class DropsFeatures(NoGraphNet):
    """A model on the nearest-neighbour graph that trains on half of the features."""

    def loss(self, x: Tensor, y: Tensor, mask: Tensor, **_: Any) -> Tensor:
        self.model.graphs(x)  # Caches the nearest nodes by all features.
        return super().loss(drop_features(x), y, mask)


def drop_features(x: Tensor) -> Tensor:
    """Set a random half of the entries to zero, and double the rest."""
    if x.layout == torch.strided:
        return F.dropout(x, 0.5)
    arrays = x.crow_indices(), x.col_indices(), F.dropout(x.values(), 0.5)
    return torch.sparse_csr_tensor(*arrays, x.shape, check_invariants=False)


def choices(name: str) -> list[dict[str, Any]]:
    """List the options of the four trainings of a method."""
    options = METHODS[name].choices
    return [
        dict(zip(options, values, strict=True))
        for values in itertools.product(*options.values())
    ]


def network(name: str, data: Data, choice: dict[str, Any], setting: Any) -> Any:
    """Build the network of a training."""
    options = {key: value for key, value in choice.items() if key != 'weight_decay'}
    hidden, classes = setting['hidden_channels'], int(data['y'].max()) + 1
    if name in GRAPHS:
        defaults = {
            k: v for k, v in setting['consistent'].items() if k != 'weight_decay'
        }
        sizes = data.num_features, hidden, classes
        return ConsistentNet(*sizes, graph=GRAPHS[name], **(defaults | options))
    if NETWORKS[name] is KNNGCN:
        options |= {'root_weight': True, 'cached': True}
    if name == 'idgl':
        options['cached'] = True
    if name in ('slaps', 'hesgsl'):
        options['binary'] = are_words(data['x'])
    layers = data.num_features, hidden, setting['num_layers'], classes
    return NETWORKS[name](*layers, **options)


def are_words(x: Tensor) -> bool:
    """Return whether features can count words: no number is negative."""
    return float((x if x.layout == torch.strided else x.values()).min()) >= 0


def table(name: str, choice: dict[str, Any], setting: Any) -> ClassifierMixin:
    """Build the classifier of a training."""
    if name == 'logreg' or METHODS[name].is_encoded:
        return LogisticRegression(max_iter=2000, C=choice['C'])
    if name == 'random_forest':
        return RandomForestClassifier(setting['trees'], random_state=0, **choice)
    if name == 'hist_boosting':
        options = {'min_samples_leaf': 2, 'random_state': 0, 'early_stopping': False}
        return HistGradientBoostingClassifier(**options, **choice)
    return LabelSpreading(kernel='knn', max_iter=300, **choice)


def trainings(
    name: str, data: Data, seed: int, setting: dict[str, Any]
) -> Iterator[Training]:
    """Yield the trainings of a method; `data` has no labels of test nodes."""
    for choice in choices(name):
        seed_everything(seed)
        if METHODS[name].kind == 'table':
            yield _fit(table(name, choice, setting), data, choice)
            continue
        wrapper = DropsFeatures if name == 'knn_gcn_drop' else NoGraphNet
        model = wrapper(network(name, data, choice, setting))
        decay = choice.get('weight_decay', setting['consistent']['weight_decay'])
        none = torch.empty(2, 0, dtype=torch.long)
        yield train(model, data, none, choice, decay, setting)


def _fit(classifier: Any, data: Data, choice: dict[str, Any]) -> Training:
    """Fit a classifier of scikit-learn to the labels of training nodes."""
    x = data['x'] if data['x'].layout == torch.strided else data['x'].to_dense()
    x = x.numpy()
    y = data['y'].numpy()
    mask = data['train_mask'].numpy()
    if isinstance(classifier, LabelSpreading):
        classifier.fit(x, np.where(mask, y, -1))
        share = classifier.label_distributions_
    else:
        classifier.fit(x[mask], y[mask])
        share = classifier.predict_proba(x)
    share = torch.from_numpy(share).double().nan_to_num()
    prediction, val = share.argmax(dim=1), data['val_mask']
    hit = (prediction == data['y'])[val].double().mean()
    loss = F.nll_loss(share.clamp(min=1e-9).log()[val], data['y'][val])
    return Training(float(hit), choice, 0, prediction, float(loss))
