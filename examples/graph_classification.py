"""Classify graphs in batches, with learned edges inside each graph.

Data: handwritten digits as sets of lit pixels (position and brightness), one graph
per image, no edges. The controls, models without a learned graph, are GraphSAGE on the
nearest pixels and an MLP of each pixel. Expected test accuracy: learned graph 93 %,
nearest pixels 94 %, no graph 94 %: on digits a learned graph gains nothing.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import Linear, global_max_pool
from torch_geometric.nn.models import MLP, GraphSAGE

from torch_geometric_gsl import LatentGraphConv
from torch_geometric_gsl.transforms import SimilarityKNNGraph

seed_everything(0)
images, digits = map(torch.from_numpy, load_digits(return_X_y=True))
row, column = torch.cartesian_prod(torch.arange(8), torch.arange(8)).t()
position = torch.cat([F.one_hot(row), F.one_hot(column)], dim=1).float()
near = SimilarityKNNGraph(10)  # Only the control reads these edges.


def lit_pixels(image: Tensor, label: Tensor) -> Data:
    lit = image > 0
    x = torch.cat([position[lit], image[lit].unsqueeze(1) / 16], dim=1)
    return near(Data(x=x, y=label))


graphs = [lit_pixels(x, y) for x, y in zip(images.float(), digits, strict=True)]
order = torch.randperm(len(graphs)).tolist()
train = DataLoader([graphs[i] for i in order[:1300]], batch_size=64, shuffle=True)
test = DataLoader([graphs[i] for i in order[1300:]], batch_size=64)


class Learned(torch.nn.Module):
    """Two layers on learned graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = LatentGraphConv(64, 64)
        self.conv2 = LatentGraphConv(64, 64)

    def forward(self, x: Tensor, batch: Tensor) -> Tensor:
        x = F.elu(self.conv1(x, batch=batch))
        return self.conv2(x, batch=batch)


class Net(torch.nn.Module):
    def __init__(self, body: torch.nn.Module, *attributes: str) -> None:
        super().__init__()
        self.lin, self.body, self.out = Linear(17, 64), body, Linear(64, 10)
        self.attributes = attributes

    def forward(self, data: Data) -> Tensor:
        graph = (data[name] for name in self.attributes)
        x = F.elu(self.body(F.elu(self.lin(data.x)), *graph))
        return self.out(global_max_pool(x, data.batch))


models = {
    'learned graph': Net(Learned(), 'batch'),
    'nearest pixels': Net(GraphSAGE(64, 64, 2, 64, act='elu'), 'edge_index'),
    'no graph': Net(MLP([64, 64, 64], act='elu', norm=None)),
}
for name, model in models.items():
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(10):
        for data in train:
            optimizer.zero_grad()
            F.cross_entropy(model(data), data.y).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        hits = sum(int((model(data).argmax(-1) == data.y).sum()) for data in test)
    print(f'{name:<15} {100 * hits / (len(graphs) - 1300):.1f} %')
