"""Put a sampler into a two-layer GCN, and learn the graph with the model.

Data: handwritten digits, no graph. Expected output: about 95 % test accuracy.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.nn import GCNConv, Linear

from torch_geometric_gsl import GumbelKNNSampler, NeuralGaussianSimilarity
from torch_geometric_gsl.datasets import load_dataset, paper_split

seed_everything(0)
data = paper_split(load_dataset('digits'), seed=0)
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
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(1, 61):
    model.train()
    optimizer.zero_grad()
    out = model(data.x)
    loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
    loss.backward()
    optimizer.step()
    if epoch % 10 == 0:
        print(f'epoch {epoch}: loss {loss.item():.3f}')

model.eval()
with torch.no_grad():
    hit = model(data.x).argmax(dim=-1) == data.y
    edge_index, edge_weight = model.sampler(data.x)
same = data.y[edge_index[0]] == data.y[edge_index[1]]
print(f'test accuracy {100 * hit[data.test_mask].float().mean():.1f} %')
print(f'{100 * same.float().mean():.1f} % of the learned edges join one digit')
