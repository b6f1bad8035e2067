"""The choice of the scale of a model's scores on validation nodes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_generator
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import CHECKS, GumbelKNNSampler
from torch_geometric_gsl.ops.local_random import DrawsFrom

#: The scales that a choice begins with: flat, and as sharp as graphs that pay.
SCALES = (1.0, 3.0, 10.0, 30.0)


class ChoosesScale(torch.nn.Module):
    """Base class of the models whose scale validation can choose."""

    scale: float | str
    chosen_scale: Tensor | None

    def _await_scale(self, scale: float | str) -> float | str:
        """Make room for a scale that is to be chosen; return that of new layers.

        Where none is to come there is no buffer: torch.export miscounts buffers that
        are None.
        """
        self.scale = scale
        if scale != 'auto':
            self.chosen_scale = None
            return scale
        self.register_buffer('chosen_scale', torch.ones((), dtype=torch.float64))
        return 1.0

    def choose_scale(
        self,
        train: Callable[[Any], float],
        scales: Iterable[float] = SCALES,
        *,
        generator: torch.Generator | None = None,
    ) -> dict[float, float]:
        r"""Train with each of several scales, and keep what validation prefers.

        It serves a model whose :obj:`scale` is :obj:`"auto"`. Each training begins with
        new parameters and the same random numbers; in the end the model is that of the
        best score as its training left it. Its scale is part of its state.

        The generator is set back before each training and at the end, so that it is
        left as it was and a second call finds the same. Without a :obj:`generator` it
        is the global one, from which no other thread should draw meanwhile.

        Args:
            train (Callable): Trains the model and returns its score on validation
                nodes, the larger the better; NaN is no score.
            scales (Iterable[float], optional): The scales. Of equal scores the
                smallest wins. (default: :obj:`(1.0, 3.0, 10.0, 30.0)`)
            generator (torch.Generator, optional): Source of randomness of the new
                parameters, from which :obj:`train` should draw as well, as in
                :obj:`model.loss(x, y, mask, generator=generator)`.
                (default: :obj:`None`)

        Returns:
            dict[float, float]: The score of each scale, in ascending order.

        Raises:
            TypeError: If :obj:`train`, :obj:`scales` or :obj:`generator` has the wrong
                type.
            ValueError: If the model's :obj:`scale` is not :obj:`"auto"`, a scale is
                out of range, the generator is on another device, or there is no score.

        Example:
            >>> from torch_geometric_gsl import GSLNet
            >>> x, y = torch.randn(60, 4), torch.arange(60) % 2
            >>> model = GSLNet(4, 8, 2, 2, scale='auto')
            >>> def train(model):
            ...     optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            ...     model.train().loss(x, y, torch.arange(30)).backward()
            ...     optimizer.step()
            ...     out = model.eval()(x)
            ...     return float((out.argmax(dim=1) == y)[30:45].float().mean())
            >>> sorted(model.choose_scale(train, scales=(1, 10)))
            [1.0, 10.0]
        """
        if self.chosen_scale is None:
            raise ValueError(f"'scale' must be 'auto' to be chosen (got {self.scale})")
        return _choose_scale(self, train, scales, generator)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        if self.chosen_scale is not None:
            set_scale(self, float(self.chosen_scale))


def set_scale(model: Any, scale: float) -> None:
    """Set the scale of all samplers of a model, and note it in its state."""
    model.chosen_scale.fill_(scale)
    for module in model.modules():
        if isinstance(module, GumbelKNNSampler):
            module.scale = scale


def _choose_scale(
    model: Any,
    train: Callable[[Any], float],
    scales: Iterable[float],
    generator: torch.Generator | None,
) -> dict[float, float]:
    """Train a model with each of some scales, and keep the best of the trained ones.

    Each training begins with new parameters and the same random numbers.
    """
    if not callable(train):
        raise TypeError(f"'train' must be callable (got {type(train).__name__})")
    check_generator(generator, next(model.parameters()).device)
    scores: dict[float, float] = {}
    best, state = -math.inf, None
    for scale in _candidates(scales):
        with _same_random_numbers(generator):
            with nullcontext() if generator is None else DrawsFrom(generator):
                model.reset_parameters()
            set_scale(model, scale)
            scores[scale] = score = float(train(model))
        # Of equal ones the flattest graph, of which more is random, stays.
        if score > best:
            best, state = score, copy.deepcopy(model).state_dict()
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
def _same_random_numbers(generator: torch.Generator | None) -> Iterator[None]:
    """Return to the random numbers of before at the end of a block."""
    if generator is None:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            yield
        return
    state = generator.get_state()
    try:
        yield
    finally:
        generator.set_state(state)
