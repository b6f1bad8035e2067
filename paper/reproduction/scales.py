"""Train a run with each of several scales; keep the best on validation nodes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from reproduction.experiments import SCALES, RunConfig
from reproduction.files import remove_drafts
from reproduction.training import Outcome, Run, Watcher
from torch_geometric_gsl import NodeClassifier

AUTO = 'auto'


class ScaleRun:
    """Trainings of one run that differ only in the scale, with the interface of a run.

    Each has an equal part of the time limit and its own checkpoints, starts from the
    seed of the run, and can be resumed. Labels of test nodes are read only for the
    selected one.

    Args:
        config: The run.
        data: Features and labels of all nodes.
        folder: Where checkpoints and metrics go, in a folder for each scale.
        device: Where the model runs.
        checkpoint_seconds: Shortest time between two checkpoints; 0 for every epoch.
    """

    def __init__(
        self,
        config: RunConfig,
        data: Data,
        folder: Path,
        device: str = 'cpu',
        checkpoint_seconds: float = 30.0,
    ) -> None:
        limit = config.time_limit / len(SCALES)
        self.config = config
        self.folder = folder
        self._scale_config = dataclasses.replace(config, time_limit=limit)
        self._args = data, device, checkpoint_seconds
        self.epoch = 0
        self.seconds = 0.0
        self.scale = SCALES[0]
        self.selected = self._begin(self.scale)[0]

    def resume(self) -> bool:
        """Count the epochs in checkpoints of all scales; training resumes from them."""
        trainings = [self._begin(scale) for scale in SCALES]
        self.epoch = sum(run.epoch for run, _ in trainings)
        return any(is_begun for _, is_begun in trainings)

    def train(self, watch: Watcher = lambda metrics: None) -> str:
        """Train with each scale to the end; return how the best training ended."""
        self.epoch = 0
        self.seconds = 0.0
        val = -2.0
        for scale in SCALES:
            run, _ = self._begin(scale)
            run.train(watch)
            run.save()
            self.epoch += run.epoch
            self.seconds += run.seconds
            if run.best['val'] > val:
                val = run.best['val']
                self.scale = scale
                self.selected = run
        return str(self.selected.status)

    def save(self) -> None:
        """Do nothing: each training is saved when it ends."""

    def score(self, data: Data) -> Outcome:
        """Score the test nodes by the selected training; their labels are read once."""
        return {**self.selected.score(data), 'epochs': self.epoch, 'scale': self.scale}

    @property
    def status(self) -> str | None:
        """Return how the selected training ended."""
        return self.selected.status

    @property
    def best_state(self) -> dict[str, Tensor]:
        """Return the parameters of the selected training, and its scale with them."""
        return self.selected.best_state

    @property
    def model(self) -> NodeClassifier:
        """Return the model of the selected training."""
        return self.selected.model

    @property
    def x(self) -> Tensor:
        """Return the features."""
        return self.selected.x

    def _begin(self, scale: float) -> tuple[Run, bool]:
        """Return the training with a scale, from its checkpoint if there is one."""
        data, device, seconds = self._args
        folder = self.folder / f'scale-{scale:g}'
        remove_drafts(folder)
        run = Run(self._scale_config, data, folder, device, seconds, scale=scale)
        return run, run.resume()


def make_run(config: RunConfig, *args: Any) -> Run | ScaleRun:
    """Return the training of a run, or one per scale if the scale is `auto`."""
    is_auto = config.options.get('scale') == AUTO
    return (ScaleRun if is_auto else Run)(config, *args)
