"""Describe a run by every choice that its result depends on, frozen and named."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

OPTIMIZERS = ('adam', 'adamw')
#: The split of a run whose data brings one.
GIVEN = 'given'


@dataclass(frozen=True)
class RunConfig:
    """One method on one data set with one seed and one setting.

    Args:
        dataset: A name of the registry, or the path of a file.
        method: A name of :obj:`reproduction.methods.METHODS`.
        seed: Of the split, the weights and all noise.
        label: The column of the labels, for a file.
        options: Arguments of the model.
        optimizer: One of :obj:`OPTIMIZERS`.
        lr: The learning rate.
        weight_decay: The weight decay.
        epochs: The largest number of epochs.
        eval_every: Epochs between two looks at the validation nodes.
        patience: Epochs without a better validation accuracy or loss after which
            training ends.
        pretrain_epochs: Epochs of self-supervision alone, where the model has any.
        time_limit: Seconds of training after which a run ends.
        digest: Of the content of a file: a file that changed is other data.
        revision: Counts changes of what the method does under the same setting.
        denoising_lr: The learning rate of all that SLAPS trains but its classifier;
            `lr` if there is none.
    """

    dataset: str
    method: str
    seed: int
    label: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    optimizer: str = 'adam'
    lr: float = 0.001
    weight_decay: float = 0.0
    epochs: int = 500
    eval_every: int = 1
    patience: int = 100
    pretrain_epochs: int = 0
    time_limit: float = 3600.0
    digest: str | None = None
    revision: int = 0
    denoising_lr: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, 'options', MappingProxyType(dict(self.options)))
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(
                f"'optimizer' must be one of {OPTIMIZERS} (got {self.optimizer!r})"
            )
        for name in ('epochs', 'eval_every', 'patience'):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"'{name}' must be at least 1 (got {getattr(self, name)})"
                )
        if self.pretrain_epochs >= self.epochs:
            raise ValueError(
                f"'pretrain_epochs' must be less than 'epochs' "
                f'(got {self.pretrain_epochs} and {self.epochs})'
            )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        names = [item.name for item in dataclasses.fields(self)]
        values = {name: getattr(self, name) for name in names}
        values['dataset'] = self.data_name
        for name, absent in (('digest', None), ('revision', 0), ('denoising_lr', None)):
            if values[name] == absent:
                del values[name]
        text = json.dumps(values | {'options': dict(self.options)})
        plain: dict[str, Any] = json.loads(text)
        return plain

    def __reduce__(self) -> tuple[Any, ...]:
        # Options that cannot be changed cannot be pickled either.
        return RunConfig.from_dict, ({**vars(self), 'options': dict(self.options)},)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        return cls(**values)

    @property
    def data_name(self) -> str:
        """Return the name of the data: a file's is the same wherever it lies."""
        return self.dataset if self.digest is None else Path(self.dataset).name

    @property
    def setting(self) -> str:
        """Return a digest of all choices but the seed."""
        values = self.to_dict()
        del values['seed']
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def __str__(self) -> str:
        return f'{self.data_name}/{self.method}-{self.setting}/seed-{self.seed}'
