"""Train one run, from its last complete checkpoint if there is one.

The training loop sees the labels of training and validation nodes only: labels of test
nodes are masked before it starts, and read once, for the final score.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric import seed_everything
from torch_geometric.data import Data

from reproduction.baselines import SLAPS
from reproduction.datasets import paper_split
from reproduction.datasets.user_file import MASKS
from reproduction.experiments import OPTIMIZERS, RunConfig
from reproduction.files import CHECKPOINT, read_tensors, write_tensors, write_text
from reproduction.settings import METHODS
from torch_geometric_gsl import NodeClassifier
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler

Metrics = dict[str, float]
Outcome = dict[str, Any]
Watcher = Callable[[Metrics], None]

#: Replaces labels that must not be read: no class has this number.
HIDDEN_LABEL = -100
#: Attributes that a checkpoint restores directly.
RESTORED = (
    *('epoch', 'seconds', 'best', 'least_loss', 'improved', 'best_state'),
    *('history', 'status'),
)
#: Other entries of a checkpoint.
STATES = ('model', 'optimizer', 'prediction', 'random')
#: The fraction of the time that checkpoints may take.
CHECKPOINT_SHARE = 0.05
#: Error of layers whose input has diverged in training.
NOT_FINITE = 'contains NaN or infinite values'
#: The score before the first evaluation and after divergence.
UNSCORED: Metrics = {'val': -1.0, 'epoch': -1}
#: The split of a run whose data provides one.
GIVEN = 'given'


def build(config: RunConfig, data: Data) -> NodeClassifier:
    """Build the model of a run; warn if the data has fewer neighbours than `k`."""
    method = METHODS[config.method]
    options = dict(config.options)
    num_nodes = int(data['x'].size(0))
    limit = num_nodes - 1
    for name in ('k', 'candidates'):
        if (options.get(name) or 0) > limit:
            warnings.warn(
                f"'{name}' is {limit} instead of {options[name]} for {config.method} "
                f'on {config.data_name}: it has {num_nodes} nodes',
                stacklevel=2,
            )
            options[name] = limit
    if method.is_sized:
        options['num_nodes'] = num_nodes
    out_channels = int(data['y'].max()) + 1
    return method.build(
        data.num_features, out_channels=out_channels, **method.options, **options
    )


def parameter_groups(
    model: NodeClassifier, config: RunConfig
) -> list[dict[str, Any]] | list[torch.nn.Parameter]:
    """Group parameters: graph and autoencoder of SLAPS have their own learning rate."""
    if not isinstance(model, SLAPS):
        return list(model.parameters())
    graph_parameters = [
        *model.denoiser.parameters(),
        *model.graph_generator.parameters(),
    ]
    classifier: dict[str, Any] = {'params': list(model.classifier.parameters())}
    lr = config.denoising_lr or config.lr
    return [classifier, {'params': graph_parameters, 'lr': lr, 'weight_decay': 0.0}]


def split_of(config: RunConfig, data: Data) -> Data:
    """Return the split of a file, the same for all seeds, or the paper's split."""
    return data if brings_split(config, data) else paper_split(data, seed=config.seed)


def brings_split(config: RunConfig, data: Data) -> bool:
    return config.digest is not None and all(name in data for name in MASKS)


def optimizer_of(model: NodeClassifier, config: RunConfig) -> torch.optim.Optimizer:
    return OPTIMIZERS[config.optimizer](
        parameter_groups(model, config),
        lr=config.lr,
        weight_decay=config.weight_decay,
        # Takes a sixth of the time for parameters with one entry per pair of a node and
        # a transition node.
        fused=True,
    )


class Run:
    """Training that can be saved and resumed after any epoch.

    Args:
        config: The run.
        data: Features and labels of all nodes.
        folder: Where checkpoints and metrics go.
        device: Where the model runs.
        checkpoint_seconds: Shortest time between two checkpoints; 0 for every epoch.
        scale: The scale of a model, if it is chosen among several.
    """

    def __init__(
        self,
        config: RunConfig,
        data: Data,
        folder: Path,
        device: str = 'cpu',
        checkpoint_seconds: float = 30.0,
        scale: float | None = None,
    ) -> None:
        self.config = config
        self.folder = folder
        self.checkpoint_seconds = checkpoint_seconds
        split = split_of(config, data).to(device)
        self.x: Tensor = split.x
        self.train_mask, self.val_mask = split.train_mask, split.val_mask
        # Nothing below can read the label of a test node.
        self.y: Tensor = split.y.masked_fill(split.test_mask, HIDDEN_LABEL)
        seed_everything(config.seed)
        self.model: NodeClassifier = build(config, data).to(device)
        if scale is not None:
            for module in self.model.modules():
                if isinstance(module, GumbelKNNSampler):
                    module.scale = scale
        if torch.device(device).type == 'cuda':
            torch.cuda.reset_peak_memory_stats(device)
        self.optimizer = optimizer_of(self.model, config)
        self.epoch, self.seconds = 0, 0.0
        self.best = UNSCORED
        self.least_loss = math.inf
        self.improved = config.pretrain_epochs
        self.best_state: dict[str, Tensor] = {}
        self.prediction = torch.zeros_like(self.y)
        self.history: list[Metrics] = []
        #: How training ended: done, timeout or diverged; :obj:`None` before.
        self.status: str | None = None
        self._saved_at, self._save_seconds = time.monotonic(), 0.0

    def train(self, watch: Watcher = lambda metrics: None) -> str:
        """Train to the end, unless the checkpoint is already that of the end."""
        if self.status is None:
            self.status = self._train(watch)
        return self.status

    def _train(self, watch: Watcher) -> str:
        while self.epoch < self.config.epochs:
            start, cpu = time.monotonic(), time.process_time()
            metrics = self._train_epoch()
            seconds = time.monotonic() - start
            if not self.x.is_cuda:
                # Time in which the process was stopped or waited does not count.
                seconds = min(seconds, time.process_time() - cpu)
            self.seconds += seconds
            self.history.append(metrics)
            self.epoch += 1
            watch(metrics)
            if not math.isfinite(metrics['loss']):
                # Not all models raise an error for NaN: a diverged run has no score.
                self.best, self.best_state = UNSCORED, {}
                return 'diverged'
            if self.seconds > self.config.time_limit:
                return 'timeout'
            # Neither accuracy nor loss has improved for too long.
            if self.epoch - 1 - self.improved >= self.config.patience:
                break
            if self._is_due():
                self.save()
        return 'done'

    def _train_epoch(self) -> Metrics:
        config = self.config
        count = self.epoch + 1
        is_pretraining = self.epoch < config.pretrain_epochs
        metrics: Metrics = {'epoch': self.epoch}
        is_due = count == config.epochs or count % config.eval_every == 0
        try:
            metrics['loss'] = self._step(is_pretraining)
            if is_due and not is_pretraining:
                metrics |= self._evaluate()
        except ValueError as error:
            if not self._is_divergence(error):
                raise
            # After a failed evaluation, the loss of the next step ends the run.
            metrics['val_loss' if 'loss' in metrics else 'loss'] = math.nan
        return metrics

    def _step(self, is_pretraining: bool) -> float:
        model: Any = self.model.train()
        self.optimizer.zero_grad()
        if is_pretraining:
            loss = model.denoising_weight * model.denoising_loss(self.x)
        else:
            loss = model.loss(self.x, self.y, self.train_mask)
        loss.backward()
        self.optimizer.step()
        return float(loss.item())

    def _is_divergence(self, error: ValueError) -> bool:
        """Return whether a layer rejected numbers of the model, not of the data."""
        x = self.x.values() if self.x.layout == torch.sparse_csr else self.x
        return NOT_FINITE in str(error) and bool(x.isfinite().all())

    @torch.no_grad()
    def _evaluate(self) -> Metrics:
        """Score the validation nodes; the best accuracy selects the epoch."""
        self.model.eval()
        out = self.model(self.x)
        prediction = out.argmax(dim=-1)
        hit = (prediction == self.y)[self.val_mask]
        val = float(hit.double().mean())
        loss = float(F.cross_entropy(out[self.val_mask], self.y[self.val_mask]))
        if val > self.best['val'] or loss < self.least_loss:
            self.improved = self.epoch
        self.least_loss = min(self.least_loss, loss)
        if val > self.best['val']:
            self.best = {'val': val, 'epoch': self.epoch}
            self.prediction = prediction
            state = self.model.state_dict().items()
            self.best_state = {name: value.clone() for name, value in state}
        return {'val': val, 'val_loss': loss}

    def score(self, data: Data) -> Outcome:
        """Score the test nodes at the selected epoch; their labels are read once."""
        test_mask = split_of(self.config, data).test_mask
        hit = (self.prediction.cpu() == data['y'])[test_mask]
        is_scored = self.best['epoch'] >= 0
        return {
            'val': self.best['val'] if is_scored else None,
            'test': float(hit.double().mean()) if is_scored else None,
            'best_epoch': int(self.best['epoch']) if is_scored else None,
            'epochs': self.epoch,
            **({'split': GIVEN} if brings_split(self.config, data) else {}),
        }

    def _is_due(self) -> bool:
        if self.checkpoint_seconds == 0:
            return True
        wait = max(self.checkpoint_seconds, self._save_seconds / CHECKPOINT_SHARE)
        return time.monotonic() - self._saved_at >= wait

    def save(self) -> None:
        """Write metrics and a checkpoint, each atomically."""
        start = time.monotonic()
        names = ('epoch', 'loss', 'val', 'val_loss')
        # One line per epoch; `val` is empty without an evaluation.
        lines = [','.join(str(m.get(n, '')) for n in names) for m in self.history]
        text = '\n'.join([','.join(names), *lines, ''])
        write_text(self.folder / 'metrics.csv', text)
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        content = {
            'config': self.config.to_dict(),
            **{name: getattr(self, name) for name in RESTORED},
            'model': self.model.state_dict(),
            'optimizer': self.optimizer.state_dict(),
            'prediction': self.prediction,
            'random': {'cpu': torch.get_rng_state(), 'cuda': cuda},
        }
        write_tensors(self.folder / CHECKPOINT, content)
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - start

    def resume(self) -> bool:
        """Resume from the last checkpoint; a damaged one is ignored."""
        checkpoint = read_tensors(self.folder / CHECKPOINT)
        if checkpoint is None or not checkpoint.keys() >= {
            'config',
            *RESTORED,
            *STATES,
        }:
            return False
        if checkpoint['config'] != self.config.to_dict():
            return False
        if _shapes(checkpoint['model']) != _shapes(self.model.state_dict()):
            return False  # The code built another model.
        self.model.load_state_dict(checkpoint['model'])
        self.optimizer.load_state_dict(checkpoint['optimizer'])
        for name in RESTORED:
            setattr(self, name, checkpoint[name])
        self.prediction = checkpoint['prediction'].to(self.y.device)
        torch.set_rng_state(checkpoint['random']['cpu'])
        if torch.cuda.is_available() and checkpoint['random']['cuda']:
            torch.cuda.set_rng_state_all(checkpoint['random']['cuda'])
        return True


def _shapes(state: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in state.items()}
