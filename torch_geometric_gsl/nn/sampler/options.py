"""Options of samplers and layers: types, budget and names."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature
from typing import Any, NamedTuple, TypedDict

from torch_geometric_gsl._checks import check_count, suggest
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


class Settings(NamedTuple):
    """The options of a sampler for one call, under the names of its arguments."""

    method: str
    bounds: tuple[float, float]  # Those of the similarity.
    scale: float
    k: int
    tau: float
    hard: bool
    replace: bool
    loop: bool  # True for a pair of node sets, too.
    budget: Budget
    num_nearest: int | None  # Neighbours in evaluation, None for all candidates.
    is_pair: bool = False


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
    bias: bool


#: Options of samplers, which other modules do not have as attributes.
PASSED_ON = frozenset({'k', 'tau', 'similarity', *SamplerOptions.__annotations__})
#: The types of plain options; others are parts of a model.
PLAIN = str, int, float, tuple, type(None)
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
    module_type: type, args: tuple[Any, ...], kwargs: dict[str, Any], **overrides: Any
) -> dict[str, Any]:
    """Return the options of the printed model, unless overridden."""
    passed = signature(module_type).bind_partial(*args).arguments.keys() | kwargs.keys()
    options = PAPER | overrides
    if not kwargs.get('replace', True):
        options['eval_k'] = None  # As many as drawn.
    return {name: options[name] for name in options.keys() - passed} | kwargs


def check_options(
    module_type: type, names: Iterable[str], inherited: Iterable[str] = ()
) -> None:
    """Raise for an option that neither a class nor its parts have."""
    parameters = signature(module_type).parameters.values()
    options = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    options |= {*inherited}
    for name in names:
        if name not in options:
            hint = suggest(name, sorted(options)) or f', but {sorted(options)}'
            raise TypeError(f'{module_type.__name__} has no option {name!r}{hint}')
