"""Options of samplers and layers: types, budget and names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from inspect import signature
from typing import Any, NamedTuple, TypedDict

import torch

from torch_geometric_gsl._checks import check_count, suggest
from torch_geometric_gsl.nn.shared_part import named_parts
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET

#: The number of pairs up to which evaluation is exact by default.
EVAL_PAIRS = 2**33


class Budget(NamedTuple):
    r"""Limits on the work of a :class:`GumbelKNNSampler`, per draw and evaluation.

    Args:
        arrivals (int, optional): The number of arrivals :math:`M` per draw that
            :obj:`"race"` and :obj:`"stream"` keep; if :obj:`None`, :math:`16 \tau`, at
            least 4. (default: :obj:`None`)
        tail (int, optional): The number of sources :math:`S` that represent the later
            arrivals of a draw, 0 for none; if :obj:`None`, enough to add only 2 % to
            the variance of a sum, at most 4,096. (default: :obj:`None`)
        eval_pairs (int, optional): The number of pairs of a graph up to which
            evaluation uses all candidates. Beyond, it samples at least 1,024 sources,
            the same in sums and in the graph, and issues a
            :class:`SampledEvaluationWarning`. Given candidates are never sampled.
            (default: :obj:`2**33`)
        memory (int, optional): The bytes of a block of rows. Does not affect results.
            (default: :obj:`2**25`)

    Example:
        >>> Budget(tail=0)._replace(memory=2**20).memory
        1048576
    """

    arrivals: int | None = None
    tail: int | None = None
    eval_pairs: int = EVAL_PAIRS
    memory: int = MEMORY_BUDGET


def check_budget(value: Any) -> Budget:
    """Return a valid budget; saved models hold a plain tuple."""
    if not isinstance(value, tuple) or len(value) != len(Budget._fields):
        raise TypeError(f"'budget' must be a Budget (got {type(value).__name__})")
    budget = Budget(*value)
    for name, minimum in (('arrivals', 1), ('tail', 0)):
        if (count := getattr(budget, name)) is not None:
            check_count(count, name, minimum)
    check_count(budget.eval_pairs, 'eval_pairs')
    check_count(budget.memory, 'memory')
    return budget


class ForwardedOptions(TypedDict, total=False):
    """Options that every layer forwards to its sampler."""

    null_score: float | None
    hard: bool
    replace: bool
    eval_k: int | str | None
    budget: Budget


class SamplerOptions(ForwardedOptions, total=False):
    """Options of :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler`."""

    scale: float
    train_scale: bool
    loop: bool
    method: str


class LayerOptions(SamplerOptions, total=False):
    """Options of :class:`~torch_geometric_gsl.nn.conv.LatentGraphConv`."""

    k: int
    tau: float
    similarity_kwargs: Any
    root_weight: bool
    add_self_loops: bool
    bias: bool
    observed: str


class HasSamplers(torch.nn.Module):
    """Base class of modules that refuse options which belong to their samplers."""

    def __setattr__(self, name: str, value: Any) -> None:
        # A subclass may have modules and tensors of these names.
        is_option = name in PASSED_ON | FIXED and isinstance(value, PLAIN)
        if is_option and (way := self._place_of(name, value)):
            kind = type(self).__name__
            raise AttributeError(f'{name!r} cannot be set on a {kind}: {way}')
        super().__setattr__(name, value)

    def _place_of(self, name: str, value: Any) -> str:
        """Return what to do instead of setting an option, if it cannot be set."""
        parts = {*vars(self).get('_modules', ()), *vars(self).get('_lenders', ())}
        if name in PASSED_ON:
            owners = parts_with(self, 'log_scale') if parts else []
            if not owners or name in _OF_PARTS:
                return 'create a new one' * bool(owners)
            return f'set it on {" and ".join(map(repr, owners))}'
        own = {*signature(type(self)).parameters, *LayerOptions.__annotations__}
        is_made = not {'convs', '_convs', 'sampler'}.isdisjoint(parts)
        if name not in own or not is_made:
            return ''
        # A net has no attribute for an option of its layers.
        is_kept = hasattr(self, name)
        is_other = getattr(self, name) != value if is_kept else 'convs' in parts
        return 'create a new one' * is_other


def parts_with(model: torch.nn.Module, name: str) -> list[str]:
    """Return expressions, such as `model.sampler`, of submodules with an attribute."""
    paths = [path for path, part in named_parts(model) if hasattr(part, name)]
    paths = [re.sub(r'\.(\d+)\b', r'[\1]', f'model.{path}') for path in paths if path]
    # PyG's names of edge types.
    return [re.sub(r'\.<(.+?)>', lambda m: str(m[1].split('___')), p) for p in paths]


#: Options of samplers, which other modules do not have as attributes.
PASSED_ON = frozenset({'k', 'tau', 'similarity', *SamplerOptions.__annotations__})
# Options whose parameters and modules are created at construction.
_OF_PARTS = 'null_score', 'similarity', 'train_scale'
# Options of layers and of nets that choose their parts at construction.
_OF_LAYERS = 'add_self_loops', 'observed', 'root_weight', 'z_channels'
_OF_NETS = 'hidden_channels', 'num_layers', 'num_relations', 'out_channels'
FIXED = frozenset({*_OF_LAYERS, *_OF_NETS, 'readout', 'target'})
#: The types of plain options; others are parts of a model.
PLAIN = str, int, float, tuple, type(None)
#: Replacements of options of 0.1.
_RENAMED = {
    'compare': "'z_channels'",
    'embedding_channels': "'z_channels'",
    'initial_scale': "'scale', with 'train_scale=True'",
    'initial_null': "'null_score'",
    'null': "'null_score'",
    'num_arrivals': "'budget=Budget(arrivals=...)'",
    'num_tail': "'budget=Budget(tail=...)'",
    'num_nearest': "'eval_k'",
    'max_eval_pairs': "'budget=Budget(eval_pairs=...)'",
    'memory_budget': "'budget=Budget(memory=...)'",
    'regularizers': "a term of your own loss, by 'return_graph=True'",
    'sample_in_eval': "'sampler.train()'",
    'remember': "'model.index(x)'",
}
#: Names of other libraries.
_SYNONYMS = {'n_neighbors': 'eval_k', 'n_estimators': 'n_members', 'epochs': 'max_iter'}
#: The options of the model as printed in the paper.
PAPER: dict[str, Any] = {
    'similarity': 'neural_gaussian',
    'k': 5,
    'tau': 0.25,
    'scale': 1.0,
    'train_scale': False,
    'loop': True,
    'eval_k': 'all',
}


def paper_options(
    kind: type, args: tuple[Any, ...], kwargs: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """Return the options of the printed model, unless overridden."""
    given = signature(kind).bind_partial(*args).arguments.keys() | kwargs.keys()
    options = PAPER | more
    if not kwargs.get('replace', True):
        options['eval_k'] = None  # As many as drawn.
    return {name: options[name] for name in options.keys() - given} | kwargs


def check_options(
    kind: type, given: Iterable[str], others: Iterable[str] = (), error: Any = TypeError
) -> None:
    """Raise for an option that neither a class nor its parts have."""
    own = signature(kind).parameters.values()
    known = {*others, *(p.name for p in own if p.kind is not p.VAR_KEYWORD)}
    for name in given:
        if name not in known:
            if (other := _SYNONYMS.get(name)) in known:
                hint = f': did you mean {other!r}?'
            else:
                hint = suggest(name, sorted(known)) or f', but {sorted(known)}'
            advice = _RENAMED.get(name, '') if 'budget' in known else ''
            # Estimators have other names, and some classes no 'z_channels'.
            if advice and ('z_channels' in known or 'z_channels' not in advice):
                hint = f': since 0.2 it is {advice}'
            raise error(f'{kind.__name__} has no option {name!r}{hint}')
