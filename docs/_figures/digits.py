"""Learn a graph of handwritten digits, and draw it."""

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import cross_entropy
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.nn import MLP

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.diagnostics import describe_graph
from torch_geometric_gsl.transforms import FreezeLatentGraph
from torch_geometric_gsl.typing import SampledGraph
from torch_geometric_gsl.visualization import plot_adjacency, plot_graph

x, y = load_digits(return_X_y=True)
x = torch.from_numpy(StandardScaler().fit_transform(x)).float()
data = Data(x=x[:600], y=torch.from_numpy(y)[:600])  # no edges
order = torch.randperm(600, generator=torch.Generator().manual_seed(0))
train_rows, test_rows = order[:60], order[210:]


def train(model: torch.nn.Module) -> float:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(60):
        optimizer.zero_grad()
        out = model(data.x)
        cross_entropy(out[train_rows], data.y[train_rows]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        hit = model(data.x).argmax(dim=1) == data.y
    return 100 * float(hit[test_rows].float().mean())


models = {
    'no graph': lambda: MLP([64, 32, 10], act='elu', dropout=[0.5, 0.0], norm=None),
    'linear, scale 10': lambda: GSLNet.paper(64, 32, 2, 10, 'linear', scale=10.0),
}
for name, make in models.items():
    seed_everything(0)
    models[name] = make()
    print(f'{name:<17}test accuracy {train(models[name]):.1f} %')

frozen = FreezeLatentGraph(models['linear, scale 10'], k=5)(Data(x=data.x))
graph = SampledGraph(frozen.edge_index, frozen.edge_weight)  # of the first layer
summary = describe_graph(graph, data.y)
print(
    f'{100 * summary.weighted_homophily:.0f} % of the weight joins one digit, '
    f'{100 * summary.chance:.0f} % by chance'
)
figure = Figure(figsize=(12, 4.8), layout='constrained')
left, right = figure.subplots(1, 2)
plot_adjacency(graph, data.y, ax=left)
plot_graph(graph, data.y, pos=data.x, ax=right)
figure.savefig('graph_linear.svg')
