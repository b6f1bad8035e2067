"""Learn a transition graph: n nodes exchange messages via s learned nodes, in O(n).

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
from torch_geometric.nn.models import MLP, GraphSAGE
from torch_geometric.transforms import RandomNodeSplit

from torch_geometric_gsl import TransitionGraphConv
from torch_geometric_gsl.transforms import SimilarityKNNGraph

seed_everything(0)
x, y = load_digits(return_X_y=True)
x = torch.from_numpy(StandardScaler().fit_transform(x)).float()
data = Data(x=x, y=torch.from_numpy(y))
data = RandomNodeSplit(num_val=0.25, num_test=0.25)(data)
num_classes = int(data.y.max()) + 1


class Net(torch.nn.Module):
    def __init__(self, num_transition_nodes: int) -> None:
        super().__init__()
        size = data.num_nodes, num_transition_nodes
        self.conv1 = TransitionGraphConv(data.num_features, 32, *size)
        self.conv2 = TransitionGraphConv(32, num_classes, *size)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(F.elu(self.conv1(x)), 0.5, self.training)
        return self.conv2(x)


model = Net(num_transition_nodes=100)
print(model)
near = SimilarityKNNGraph(10)(Data(x=data.x)).edge_index
sizes = data.num_features, 32, 2, num_classes
models = {
    'learned graph': (model,),
    'nearest rows': (GraphSAGE(*sizes, dropout=0.5, act='elu'), near),
    'no graph': (MLP([sizes[0], 32, num_classes], dropout=0.5, act='elu', norm=None),),
}
for name, (net, *graph) in models.items():
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(100):
        net.train()
        optimizer.zero_grad()
        out = net(data.x, *graph)
        F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
    with torch.no_grad():
        hit = net.eval()(data.x, *graph).argmax(dim=-1) == data.y
    print(f'{name:<14} {100 * hit[data.test_mask].float().mean():.1f} %')

with torch.no_grad():
    transition = model.conv1.graph(data.x)
print(f'{transition.edge_index.size(1):,} edges from transition nodes to nodes')
