"""Train a model as a Lightning module on data of PyG.

    pip install lightning
    python examples/train_with_lightning.py

Data: handwritten digits, no graph. Expected output: about 96 % test accuracy.
"""

import logging
import sys
import warnings

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.lightning import LightningNodeData

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.datasets import load_dataset, paper_split

try:
    import lightning as L
except ImportError:
    sys.exit("This example needs Lightning, and is skipped: pip install 'lightning'")


class LitGSLNet(L.LightningModule):  # type: ignore[misc, unused-ignore]
    """A model of the package, with its loss and metric."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        options = {'similarity': 'linear', 'z_channels': -1, 'scale': 20.0}
        self.model = GSLNet(in_channels, 64, 2, num_classes, **options)

    def training_step(self, data: Data) -> Tensor:
        loss = self.model.loss(data.x, data.y, data.train_mask)
        self.log('loss', loss, prog_bar=True, batch_size=data.num_nodes)
        return loss

    def validation_step(self, data: Data) -> None:
        score = self.model.score(data.x, data.y, data.val_mask)
        self.log('val', score['accuracy'], prog_bar=True, batch_size=data.num_nodes)

    def test_step(self, data: Data) -> None:
        score = self.model.score(data.x, data.y, data.test_mask)
        self.log('test', score['accuracy'], batch_size=data.num_nodes)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01, weight_decay=5e-4)


def main() -> None:
    warnings.filterwarnings('ignore', module='lightning')  # On the number of workers.
    logging.getLogger('lightning.pytorch').setLevel(logging.ERROR)
    L.seed_everything(0, verbose=False)
    data = paper_split(load_dataset('digits'), seed=0)
    # All nodes are one batch, as each can be a neighbour of any other.
    nodes = LightningNodeData(data, loader='full')
    trainer = L.Trainer(
        max_epochs=60,
        accelerator='cpu',
        log_every_n_steps=1,
        check_val_every_n_epoch=10,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    model = LitGSLNet(data.num_features, int(data.y.max()) + 1)
    trainer.fit(model, nodes)
    (found,) = trainer.test(model, nodes, verbose=False)
    print(f'test accuracy {100 * found["test"]:.1f} %')


if __name__ == '__main__':
    main()
