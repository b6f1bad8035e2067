"""The options of samplers and layers, as editors and readers see them."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from inspect import signature
from typing import Any, TypedDict

from torch_geometric_gsl.nn.sampler.budget import Budget


class DrawOptions(TypedDict, total=False):
    """Those options of a sampler that each layer leaves to it."""

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
    'compare': "'z_channels', -1 to compare the input",
    'embedding_channels': "'z_channels'",
    'initial_scale': "'scale', with 'train_scale=True'",
    'initial_null': "'null_score'",
    'null': "'null_score'",
    'num_arrivals': "'budget=Budget(arrivals=...)'",
    'num_tail': "'budget=Budget(tail=...)'",
    'max_eval_pairs': "'budget=Budget(eval_pairs=...)'",
    'eval_tolerance': "'budget=Budget(eval_tolerance=...)'",
    'memory_budget': "'budget=Budget(memory=...)'",
    'regularizers': "a term of your own loss, by 'return_graph=True'",
    'sample_in_eval': "'sampler.train()'",
}
#: The options of the printed model.
PAPER: dict[str, Any] = {'k': 5, 'tau': 0.25, 'scale': 1.0, 'loop': True}


def check_options(kind: type, given: Iterable[str], others: Iterable[str]) -> None:
    """Raise if a class is given an option that neither it has, nor its parts."""
    known = {*others, *signature(kind).parameters} - {'kwargs'}
    for name in given:
        if name not in known:
            near = get_close_matches(name, sorted(known), 1)
            hint = f', but {sorted(known)}'
            advice = _RENAMED.get(name, '')
            # A class without 'z_channels' is not to be given it.
            if advice and ('z_channels' in known or 'z_channels' not in advice):
                hint = f': since 0.2 it is {advice}'
            elif near:
                hint = f': did you mean {near[0]!r}?'
            raise TypeError(f'{kind.__name__} has no option {name!r}{hint}')
