"""Put a sampler into a two-layer GCN, and learn the graph with the model.

Data: handwritten digits, no graph. The controls, models without a learned graph, are
GraphSAGE on the nearest rows and an MLP. Expected test accuracy: learned graph 95 %,
nearest rows 97 %, no graph 97 %: on digits a learned graph gains nothing.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, Linear
from torch_geometric.nn.models import MLP, GraphSAGE
from torch_geometric.transforms import RandomNodeSplit

from torch_geometric_gsl import GumbelKNNSampler, NeuralGaussianSimilarity
from torch_geometric_gsl.transforms import SimilarityKNNGraph

seed_everything(0)
x, y = load_digits(return_X_y=True)
x = torch.from_numpy(StandardScaler().fit_transform(x)).float()
data = Data(x=x, y=torch.from_numpy(y))
data = RandomNodeSplit(num_val=0.25, num_test=0.25)(data)
num_classes = int(data.y.max()) + 1


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # 'out_channels' gives the similarity its own learned projection.
        similarity = NeuralGaussianSimilarity(data.num_features, out_channels=16)
        self.sampler = GumbelKNNSampler(similarity, scale=10.0, eval_k=5)
        self.conv1 = GCNConv(data.num_features, 32, add_self_loops=False)
        self.conv2 = GCNConv(32, num_classes, add_self_loops=False)
        self.root1 = Linear(data.num_features, 32, bias=False)
        self.root2 = Linear(32, num_classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        edge_index, edge_weight = self.sampler(x)
        x = F.elu(self.conv1(x, edge_index, edge_weight) + self.root1(x))
        x = F.dropout(x, 0.5, self.training)
        return self.conv2(x, edge_index, edge_weight) + self.root2(x)


model = Net()
near = SimilarityKNNGraph(10)(Data(x=data.x)).edge_index
sizes = data.num_features, 32, 2, num_classes
models = {
    'learned graph': (model,),
    'nearest rows': (GraphSAGE(*sizes, dropout=0.5, act='elu'), near),
    'no graph': (MLP([sizes[0], 32, num_classes], dropout=0.5, act='elu', norm=None),),
}
for name, (net, *graph) in models.items():
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(60):
        net.train()
        optimizer.zero_grad()
        out = net(data.x, *graph)
        F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
    with torch.no_grad():
        hit = net.eval()(data.x, *graph).argmax(dim=-1) == data.y
    print(f'{name:<14} {100 * hit[data.test_mask].float().mean():.1f} %')

with torch.no_grad():
    edge_index, edge_weight = model.sampler(data.x)
same = data.y[edge_index[0]] == data.y[edge_index[1]]
print(f'{100 * same.float().mean():.1f} % of the learned edges join one digit')
