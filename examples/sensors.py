"""Forecast sensors, and learn their couplings: `--data '{"coupling": "sine"}'`.

The network predicts the next value of each sensor from three past ones. Precision is
that of the top k pairs for k couplings, so recall is equal. "Either way" is undirected.
"""

import argparse
import json
from collections import defaultdict
from typing import Any

import torch
from matplotlib.figure import Figure
from sklearn.covariance import GraphicalLassoCV
from sklearn.metrics import average_precision_score
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.utils import to_dense_adj
from tqdm import trange

from torch_geometric_gsl import SampledGraph, SensorGraphConv
from torch_geometric_gsl.datasets import CoupledSensors


class Forecaster(torch.nn.Module):
    def __init__(self, num_sensors: int, graph: SampledGraph | None) -> None:
        super().__init__()
        self.graph = graph  # None: the graph is learned.
        self.first = torch.nn.Linear(3, 16)
        self.conv: Any = SensorGraphConv(16, 16, num_sensors, **args.layer)
        self.last = torch.nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:  # [batch, time, sensors, 1]
        h = self.first(x.squeeze(-1).transpose(1, 2)).relu()
        return self.last(self.conv(h, graph=self.graph).relu()).unsqueeze(1)  # type: ignore[no-any-return]


def agreement(score: Tensor, true: Tensor) -> list[float]:
    score, true = (m[~torch.eye(len(m)).bool()] for m in (score, true))
    best = score.topk(int(true.sum())).indices
    return [float(true[best].mean()), float(average_precision_score(true, score))]


parser = argparse.ArgumentParser(description=__doc__)
for name in ('--data', '--layer'):
    parser.add_argument(name, type=json.loads, default={}, help='options, as JSON')
parser.add_argument('--seeds', type=int, default=1)
parser.add_argument('--picture', help='file for the graphs of the last seed')
parser.add_argument('--quick', action='store_true', help='only test that it runs')
args = parser.parse_args()
rows: dict[str, list[list[float]]] = defaultdict(list)
for seed in range(args.seeds):
    seed_everything(seed)
    dataset = CoupledSensors(**args.data, seed=seed)
    data: Any = dataset[0]
    cut = int(0.8 * dataset.num_steps)  # Later steps are the test set.
    std, mean = torch.std_mean(data.x[:, :cut], dim=1, keepdim=True)
    x, y = ((window - mean) / std for window in dataset.windows(3))
    graph = SampledGraph(data.true_edge_index, data.true_edge_weight)
    true = to_dense_adj(graph.edge_index)[0].t()  # Targets by sources, as all scores.
    now, past = y[:cut].flatten(1), x[:cut, ..., 0]
    lasso = GraphicalLassoCV(alphas=[0.01, 0.02, 0.05, 0.1, 0.2, 0.4]).fit(now)
    inverse = torch.tensor(lasso.precision_).float()
    fit = torch.linalg.lstsq(past.flatten(1), now).solution
    error = (x[cut:].flatten(1) @ fit - y[cut:].flatten(1)).square().mean()
    rows['error, least squares'].append([float(error)])
    graphs = {'no graph': graph.prune(1), 'true graph': graph, 'learned graph': None}
    for name, fixed_graph in graphs.items():
        model = Forecaster(dataset.num_sensors, fixed_graph)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in trange(20 if args.quick else 3000, desc=name, disable=None):
            batch = torch.randint(cut, (64,))
            optimizer.zero_grad()
            (model(x[batch]) - y[batch]).square().mean().backward()
            optimizer.step()
        error = (model.eval()(x[cut:]) - y[cut:]).square().mean().detach()
        rows[f'error, {name}'].append([float(error)])
    edges, weight = model.conv.graph()
    scores = {
        'correlation': torch.corrcoef(now.t()).abs(),
        'lagged correlation': (now.t() @ past.transpose(0, 1)).abs().amax(dim=0),
        'graphical lasso': inverse.abs() / inverse.diag().outer(inverse.diag()).sqrt(),
        'least squares': fit.view(*past.shape[1:], -1).abs().amax(dim=0).t(),
        'learned graph': to_dense_adj(edges, edge_attr=weight.detach())[0].t(),
    }
    for name, score in scores.items():
        both = agreement(score.maximum(score.t()), true.maximum(true.t()))
        rows[name].append([*agreement(score, true), both[0]])
print(f'mean of {args.seeds}: squared error; precision, average precision, either way')
for name, values in rows.items():
    print(f'{name:<21}', *(f'{value:8.3f}' for value in torch.tensor(values).mean(0)))
if args.picture:
    figure = Figure(figsize=(10, 3.6), layout='constrained')
    maps, order = {'true couplings': true, **scores}, data.group.argsort()
    names = 'true couplings', 'learned graph', 'correlation'
    for axis, name in zip(figure.subplots(1, 3), names, strict=True):
        axis.imshow(maps[name].fill_diagonal_(0)[order][:, order].numpy(), cmap='Blues')
        axis.set(title=name, xlabel='source', ylabel='target', xticks=[], yticks=[])
    figure.savefig(args.picture, dpi=120)
