"""What a sampler may spend: arrivals, pairs and memory."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch_geometric_gsl._checks import check_count, check_positive
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET

#: The number of pairs up to which evaluation is exact by default.
EVAL_PAIRS = 2**33


class Budget(NamedTuple):
    r"""What a :class:`GumbelKNNSampler` may spend on a draw and on an evaluation.

    Args:
        arrivals (int, optional): The number of arrivals :math:`M` that :obj:`"race"`
            and :obj:`"stream"` keep of each draw; if :obj:`None`, :math:`16 \tau`, at
            least 4. (default: :obj:`None`)
        tail (int, optional): The number of sources :math:`S` that represent the later
            arrivals of each draw, 0 for none; if :obj:`None`, as many as add 2 % to the
            variance of a sum of neighbours, at most 4,096. (default: :obj:`None`)
        eval_pairs (int, optional): The number of pairs of a graph up to which
            evaluation sums all candidates exactly. Beyond, it estimates the sums from a
            sample of the sources, with a :class:`SampledEvaluationWarning` of their
            error. Given candidates are always summed exactly.
            (default: :obj:`2**33`)
        eval_tolerance (float, optional): If given, it takes the place of
            :obj:`eval_pairs`: the sums of an evaluation differ from the exact ones by
            this share of their norm at the most. Pairs are left out where that is
            certain; with gradients enabled, a null neighbour or sparse features all
            are summed. (default: :obj:`None`)
        memory (int, optional): The bytes of a block of rows. It changes no result.
            (default: :obj:`2**25`)

    Example:
        >>> Budget(tail=0)._replace(memory=2**20).memory
        1048576
    """

    arrivals: int | None = None
    tail: int | None = None
    eval_pairs: int = EVAL_PAIRS
    eval_tolerance: float | None = None
    memory: int = MEMORY_BUDGET


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
    if budget.eval_tolerance is not None:
        check_positive(budget.eval_tolerance, 'eval_tolerance')
        if budget.eval_pairs != EVAL_PAIRS:
            raise ValueError(
                f"'eval_pairs' must be left out beside 'eval_tolerance', which takes "
                f'its place (got {budget.eval_pairs})'
            )
    return budget
