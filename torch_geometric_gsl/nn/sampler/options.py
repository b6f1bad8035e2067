"""The options of samplers and layers: their types, their budget and their names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from inspect import signature
from typing import Any, NamedTuple, TypedDict

from torch_geometric_gsl._checks import check_count, check_positive
from torch_geometric_gsl.ops.knn_backends import check_backend
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET

#: The number of pairs up to which evaluation is exact by default.
EVAL_PAIRS = 2**33


class Budget(NamedTuple):
    r"""Limits of the work of a :class:`GumbelKNNSampler`, by draw and evaluation.

    Args:
        arrivals (int, optional): The number of arrivals :math:`M` that :obj:`"race"`
            and :obj:`"stream"` keep of each draw; if :obj:`None`, :math:`16 \tau`, at
            least 4. (default: :obj:`None`)
        tail (int, optional): The number of sources :math:`S` that represent the later
            arrivals of each draw, 0 for none; if :obj:`None`, as many as add 2 % to the
            variance of a sum of neighbours, at most 4,096. (default: :obj:`None`)
        eval_pairs (int, optional): The number of pairs of a graph up to which
            evaluation takes all candidates. Beyond, it takes a sample of the sources,
            at least 1,024, the same in sums and in the graph, with a
            :class:`SampledEvaluationWarning`. Given candidates are never sampled.
            (default: :obj:`2**33`)
        eval_tolerance (float, optional): If given, it takes the place of
            :obj:`eval_pairs`: the sums of an evaluation differ from those over its
            graph by this share of their norm at the most. Pairs are left out where that
            is certain; with gradients enabled, a null neighbour or sparse features all
            are summed. (default: :obj:`None`)
        memory (int, optional): The bytes of a block of rows. It changes no result.
            (default: :obj:`2**25`)
        search (str, optional): How evaluation finds the :obj:`eval_k` heaviest
            candidates: :obj:`"exact"`, or by another library, :obj:`"faiss"` (its exact
            index in single precision) or :obj:`"pynndescent"` (approximate), for a
            similarity that falls with the distance. What they miss of 64 targets is
            told by a :class:`SampledEvaluationWarning`. Given candidates are searched
            exactly. (default: :obj:`"exact"`)

    Example:
        >>> Budget(tail=0)._replace(memory=2**20).memory
        1048576
    """

    arrivals: int | None = None
    tail: int | None = None
    eval_pairs: int = EVAL_PAIRS
    eval_tolerance: float | None = None
    memory: int = MEMORY_BUDGET
    search: str = 'exact'


def check_budget(value: Any) -> Budget:
    """Return a valid budget; a saved model holds a plain tuple."""
    if not isinstance(value, tuple) or len(value) != len(Budget._fields):
        raise TypeError(f"'budget' must be a Budget (got {type(value).__name__})")
    budget = Budget(*value)
    for name, minimum in (('arrivals', 1), ('tail', 0)):
        if (count := getattr(budget, name)) is not None:
            check_count(count, name, minimum)
    check_count(budget.eval_pairs, 'eval_pairs')
    check_count(budget.memory, 'memory')
    check_backend(budget.search, 'search')
    if budget.eval_tolerance is not None:
        check_positive(budget.eval_tolerance, 'eval_tolerance')
        if budget.eval_pairs != EVAL_PAIRS:
            raise ValueError(
                f"'eval_pairs' must be left out beside 'eval_tolerance', which takes "
                f'its place (got {budget.eval_pairs})'
            )
    return budget


class DrawOptions(TypedDict, total=False):
    """Options of a sampler that no layer changes."""

    null_score: float | None
    hard: bool
    replace: bool
    eval_k: int | str | None
    budget: Budget


class SamplerOptions(DrawOptions, total=False):
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


#: What options of 0.1 are now.
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
    'eval_tolerance': "'budget=Budget(eval_tolerance=...)'",
    'memory_budget': "'budget=Budget(memory=...)'",
    'regularizers': "a term of your own loss, by 'return_graph=True'",
    'sample_in_eval': "'sampler.train()'",
    'remember': "'model.index(x)'",
}
#: The options of the printed model.
PAPER: dict[str, Any] = {
    'similarity': 'neural_gaussian',
    'k': 5,
    'tau': 0.25,
    'scale': 1.0,
    'train_scale': False,
    'loop': True,
    'eval_k': 'all',
}
#: Those options of layers whose defaults are not the sampler's, by validation:
#: ``benchmark/defaults.py`` compares them.
DEFAULTS: dict[str, Any] = {'scale': 10.0, 'train_scale': True, 'loop': False}


def paper_options(
    kind: type, args: tuple[Any, ...], kwargs: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """Return the printed model's options where a call of a class gives no other."""
    given = signature(kind).bind_partial(*args).arguments.keys() | kwargs.keys()
    options = PAPER | more
    if not kwargs.get('replace', True):
        options['eval_k'] = None  # As many as are drawn.
    return {name: options[name] for name in options.keys() - given} | kwargs


def check_options(kind: type, given: Iterable[str], others: Iterable[str]) -> None:
    """Raise if a class is given an option that neither it has, nor its parts."""
    own = signature(kind).parameters.values()
    known = {*others, *(p.name for p in own if p.kind is not p.VAR_KEYWORD)}
    for name in given:
        if name not in known:
            hint = f', but {sorted(known)}'
            advice = _RENAMED.get(name, '')
            # A class without 'z_channels' is not to be given it.
            if advice and ('z_channels' in known or 'z_channels' not in advice):
                hint = f': since 0.2 it is {advice}'
            elif near := get_close_matches(name, sorted(known), 1, cutoff=0.75):
                hint = f': did you mean {near[0]!r}?'
            raise TypeError(f'{kind.__name__} has no option {name!r}{hint}')
