"""Train a model as a Lightning module on data of PyG.

    pip install lightning
    python examples/train_with_lightning.py

Data: handwritten digits, no graph. The controls, models without a learned graph, are
GraphSAGE on the nearest rows and an MLP. Expected test accuracy: 96 to 97 % each.
"""

import logging
import sys
import warnings

import torch
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.nn.models import MLP, GraphSAGE
from torch_geometric.transforms import RandomNodeSplit

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.transforms import SimilarityKNNGraph

try:
    import lightning as L
    from torch_geometric.data.lightning import LightningNodeData
except ImportError:
    sys.exit("This example needs Lightning, and is skipped: pip install 'lightning'")


class LitModel(L.LightningModule):  # type: ignore[misc, unused-ignore]
    """A model of nodes, which takes the features, or these and the nearest rows."""

    def __init__(self, model: torch.nn.Module, has_graph: bool = False) -> None:
        super().__init__()
        self.model, self.has_graph = model, has_graph

    def forward(self, data: Data) -> Tensor:
        graph = [data.edge_index] if self.has_graph else []
        out: Tensor = self.model(data.x, *graph)
        return out

    def training_step(self, data: Data) -> Tensor:
        loss = cross_entropy(self(data)[data.train_mask], data.y[data.train_mask])
        self.log('loss', loss, prog_bar=True, batch_size=data.num_nodes)
        return loss

    def log_accuracy(self, name: str, data: Data, mask: Tensor) -> None:
        hit = self(data).argmax(dim=1) == data.y
        self.log(name, hit[mask].float().mean(), batch_size=data.num_nodes)

    def validation_step(self, data: Data) -> None:
        self.log_accuracy('val', data, data.val_mask)

    def test_step(self, data: Data) -> None:
        self.log_accuracy('test', data, data.test_mask)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01, weight_decay=5e-4)


def main() -> None:
    warnings.filterwarnings('ignore', module='lightning')  # On the number of workers.
    logging.getLogger('lightning.pytorch').setLevel(logging.ERROR)
    L.seed_everything(0, verbose=False)
    # Only the control 'nearest rows' reads the edges.
    x, y = load_digits(return_X_y=True)
    x = torch.from_numpy(StandardScaler().fit_transform(x)).float()
    split = RandomNodeSplit(num_val=0.25, num_test=0.25)
    data = SimilarityKNNGraph(10)(split(Data(x=x, y=torch.from_numpy(y))))
    # All nodes are one batch, as each can be a neighbour of any other.
    nodes = LightningNodeData(data, loader='full')
    sizes = data.num_features, 64, 2, int(data.y.max()) + 1
    options = {'similarity': 'linear', 'z_channels': -1, 'scale': 20.0}
    models = {
        'learned graph': LitModel(GSLNet(*sizes, **options)),
        'nearest rows': LitModel(GraphSAGE(*sizes, dropout=0.5), has_graph=True),
        'no graph': LitModel(MLP([sizes[0], 64, sizes[-1]], dropout=0.5, norm=None)),
    }
    for name, model in models.items():
        trainer = L.Trainer(
            max_epochs=60,
            accelerator='cpu',
            log_every_n_steps=1,
            check_val_every_n_epoch=10,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
        )
        trainer.fit(model, nodes)
        (metrics,) = trainer.test(model, nodes, verbose=False)
        print(f'{name}: test accuracy {100 * metrics["test"]:.1f} %')


if __name__ == '__main__':
    main()
