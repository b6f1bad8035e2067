"""Choose the settings: standard, as the paper prints them, quick, or found by a search.

A setting is looked up in the order below; what comes later replaces what came before:
everything, the data set, the method, the method on the data set, the preset.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from filelock import FileLock

from reproduction.config import RunConfig
from reproduction.files import digest_of, read_kept, write_json
from reproduction.methods import METHODS
from torch_geometric_gsl.datasets import DATASETS

RESULTS = Path(__file__).resolve().parents[1] / 'results'
#: The settings that a search found, beside the results.
TUNED = 'tuned.json'

PRESETS = ('standard', 'paper', 'quick', 'tuned')

PAPER = ('CiteSeer', 'PubMed', 'Chameleon', 'Squirrel', 'CS', 'Physics', '20News')
WORDS = ('CiteSeer', 'PubMed', 'Chameleon', 'Squirrel', 'CS', 'Physics')
BROUGHT = 'MiniImageNet'  # The user brings its file.

#: Fields of a run that are not arguments of the model.
TRAINING = frozenset(
    {
        *('optimizer', 'lr', 'weight_decay', 'epochs', 'eval_every', 'patience'),
        *('pretrain_epochs', 'denoising_lr', 'time_limit'),
    }
)

# Widths, dropout, K and tau are the paper's; the epoch of the best validation accuracy
# and their number are its released code's; it does not tell weight decay. Its rate of
# learning is 0.001 but for CiteSeer: with features whose rows sum to 1, training has
# then not converged after 500 epochs.
EVERYTHING: dict[str, Any] = {
    'lr': 0.01,
    'weight_decay': 0.0,
    'epochs': 500,
    'patience': 50,
    'eval_every': 2,
    'hidden_channels': 32,
    'num_layers': 2,
    'dropout': 0.5,
    'time_limit': 1200.0,
}
# An exact evaluation of the full graph looks at all pairs of nodes.
LARGE: dict[str, Any] = {'eval_every': 10}
DATASET: dict[str, dict[str, Any]] = {
    'PubMed': LARGE,
    'CS': LARGE,
    'Physics': LARGE,
    BROUGHT: LARGE | {'hidden_channels': 256},
}
OURS: dict[str, Any] = {'k': 5, 'tau': 0.25}
TRANSITION: dict[str, Any] = OURS | {'num_transition_nodes': 500}
# Its recipe for data without a graph.
IDGL: dict[str, Any] = {
    'lr': 0.01,
    'hidden_channels': 16,
    'weight_decay': 5e-4,
    'k': 20,
    'skip_weight': 0.8,
    'update_weight': 0.7,
}
# From the recipes of the methods' papers and public code, K of kNN from the paper.
METHOD: dict[str, dict[str, Any]] = {
    'gcn_knn': {'k': 5},
    'heat_gcn_knn': {'k': 5},
    'linkx_knn': {'k': 5, 'optimizer': 'adamw', 'lr': 0.01, 'weight_decay': 1e-3},
    'slaps': {
        'lr': 0.01,
        # Without weight decay, which is that of the classifier.
        'denoising_lr': 0.001,
        'weight_decay': 5e-4,
        # Of 500 epochs; its recipe: 400 of 2,000.
        'pretrain_epochs': 100,
        'k': 30,
        'binary': False,
        'graph_generator': 'mlp',
    },
    'idgl': IDGL,
    'idgl_anchor': IDGL,
    'nodeformer': {'heads': 4, 'k': 10, 'tau': 0.25, 'weight_decay': 5e-3},
    'lin_sim': OURS,
    'lin_sim_t': TRANSITION,
    'gau_sim': OURS,
    'gau_sim_t': TRANSITION,
    'neural_gau_sim': OURS,
    'neural_gau_sim_t': TRANSITION,
    'mlp': {},
    'knn_gcn_root': {'k': 5},
    'uniform': OURS,
}
# Their features are words that a document has or has not. They are thousands but for
# PubMed: of the two generators of SLAPS only the diagonal one trains in time on a CPU.
SLAPS_WORDS: dict[str, Any] = {
    'binary': True,
    'graph_generator': 'mlp_d',
    'denoising_lr': 0.01,
}
METHOD_ON_DATASET: dict[tuple[str, str], dict[str, Any]] = {
    **{('slaps', name): SLAPS_WORDS for name in WORDS},
    ('slaps', 'PubMed'): {
        'binary': True,
        'denoising_lr': 0.01,
        'k': 15,
        'mask_ratio': 20,
        'denoising_channels': 128,
    },
    ('nodeformer', '20News'): {
        'hidden_channels': 128,
        'heads': 8,
        'dropout': 0.3,
        'lr': 0.005,
        'weight_decay': 0.05,
    },
    ('nodeformer', BROUGHT): {'hidden_channels': 64, 'heads': 6, 'lr': 0.01},
}
# With a patience for the slower rate; a recipe that names a rate of its own keeps it.
AS_PRINTED: dict[str, Any] = {'lr': 0.001, 'patience': 100}
QUICK: dict[str, Any] = {
    'epochs': 20,
    'patience': 20,
    'eval_every': 1,
    'time_limit': 60.0,
}


def data_key(dataset: str, label: str | None) -> str:
    """Return a name as it is, a file by its content and the column of its labels."""
    if dataset in DATASETS:
        return dataset
    path = Path(dataset)
    return ':'.join([path.name, label or '', digest_of(path) or ''])


def found_settings(
    results: Path, dataset: str, label: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return what a search found for each method, with the preset that it changes."""
    content = read_kept(results / TUNED) or {}
    found: dict[str, dict[str, Any]] = content.get(data_key(dataset, label), {})
    return found


def keep_setting(
    results: Path, dataset: str, label: str | None, method: str, found: dict[str, Any]
) -> None:
    """Write down the best setting of a method."""
    with FileLock(results / f'.{TUNED}.lock'):
        content = read_kept(results / TUNED) or {}
        content.setdefault(data_key(dataset, label), {})[method] = found
        write_json(results / TUNED, content)


def make_config(
    dataset: str,
    method: str,
    seed: int,
    preset: str = 'standard',
    label: str | None = None,
    *,
    results: Path = RESULTS,
    **changes: Any,
) -> RunConfig:
    """Return the run of a method on a data set under a preset.

    Args:
        dataset: A name, or the path of a file.
        method: The method.
        seed: The seed.
        preset: One of :obj:`PRESETS`.
        label: The column of the labels, for a file; a name has none.
        results: The folder of what a search found.
        **changes: What differs from the preset, such as `k=10`.
    """
    if preset not in PRESETS:
        raise ValueError(f"'preset' must be one of {PRESETS} (got {preset!r})")
    if method not in METHODS:
        raise ValueError(f"'method' must be one of {list(METHODS)} (got {method!r})")
    if preset == 'tuned':
        found = found_settings(results, dataset, label).get(method)
        if found is None:
            raise ValueError(f"no search has tuned '{method}' on '{dataset}' yet")
        changes = found['setting'] | changes
        return make_config(dataset, method, seed, found['preset'], label, **changes)
    recipe = METHOD[method] | METHOD_ON_DATASET.get((method, dataset), {})
    values = EVERYTHING | DATASET.get(dataset, {}) | recipe
    if preset == 'paper':
        printed = AS_PRINTED | ({'lr': 0.01} if dataset == 'CiteSeer' else {})
        values |= printed | {'lr': recipe.get('lr', printed['lr'])}
    if preset == 'quick':
        values |= QUICK
        values['pretrain_epochs'] = min(values.get('pretrain_epochs', 0), 5)
    values |= changes
    training = {name: values.pop(name) for name in TRAINING & values.keys()}
    if dataset not in DATASETS:
        training |= {'label': label, 'digest': digest_of(Path(dataset))}
    training |= {'revision': METHODS[method].revision}
    return RunConfig(dataset, method, seed, options=values, **training)
