"""The choice of the scale of a model's scores on validation nodes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.sampler.plan import CHECKS

#: The scales that a choice begins with: flat, and as sharp as graphs that pay.
SCALES = (1.0, 3.0, 10.0, 30.0)


def set_scale(model: Any, scale: float) -> None:
    """Set the scale of all samplers of a model, and note it in its state."""
    model.chosen_scale.fill_(scale)
    for module in model.modules():
        if isinstance(module, GumbelKNNSampler):
            module.scale = scale


def choose_scale(
    model: Any, train: Callable[[Any], float], scales: Iterable[float]
) -> dict[float, float]:
    """Train a model with each of some scales, and keep the best of the trained ones.

    Each training begins with new parameters and the same random numbers.
    """
    if not callable(train):
        raise TypeError(f"'train' must be callable (got {type(train).__name__})")
    candidates = _candidates(scales)
    scores: dict[float, float] = {}
    best, state = -math.inf, None
    for scale in candidates:
        with _same_random_numbers(is_last=scale == candidates[-1]):
            model.reset_parameters()
            set_scale(model, scale)
            scores[scale] = score = float(train(model))
        # Of equal ones the flattest graph, of which more is random, stays.
        if score > best:
            best, state = score, copy.deepcopy(model.state_dict())
    if state is None:
        raise ValueError(f"'train' must return a score for a scale (got {scores})")
    model.load_state_dict(state)
    return scores


def _candidates(scales: Any) -> list[float]:
    """Return distinct scales in ascending order."""
    if isinstance(scales, str) or not isinstance(scales, Iterable):
        raise TypeError(
            f"'scales' must be several numbers (got {type(scales).__name__})"
        )
    found = list(scales)
    if not found:
        raise ValueError("'scales' must hold a number (got none)")
    for scale in found:
        if isinstance(scale, str):
            raise TypeError(f"'scales' must hold numbers (got {scale!r})")
        CHECKS['scale'](scale, name='scales')
    return sorted({float(scale) for scale in found})


@contextmanager
def _same_random_numbers(*, is_last: bool) -> Iterator[None]:
    """Return to the random numbers of before, but after the last of some blocks."""
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices, enabled=not is_last):
        yield
