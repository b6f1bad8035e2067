"""Train with five labels per class: two drawn graphs shall give the same prediction.

The consistency loss of GRAND (https://arxiv.org/abs/2005.11079) lets nodes without a
label train the network: the distance of the predictions of several draws to their
sharpened mean. Data: handwritten digits, no graph. The controls, models without a
learned graph, are GraphSAGE on the nearest rows and an MLP. Expected test accuracy of
the last epoch, mean over three splits: no graph 84.8 %, nearest rows 87.0 %, with the
consistency loss 87.4 %; learned graph 87.1 %, with the consistency loss 88.0 %.

    python examples/consistency.py
"""

from typing import Any

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.nn.models import MLP, GraphSAGE
from torch_geometric.transforms import RandomNodeSplit

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.transforms import SimilarityKNNGraph

EPOCHS, SEEDS = 150, 3


def consistency_loss(outs: Tensor, temperature: float = 0.5) -> Tensor:
    """Return the distance of draws [draws, nodes, classes] to their sharpened mean."""
    share = outs.softmax(dim=-1)
    sharpened = (share.mean(dim=0).log() / temperature).softmax(dim=-1).detach()
    return (share - sharpened).square().sum(dim=-1).mean()


def train(model: torch.nn.Module, data: Any, *graph: Any, draws: int = 1) -> float:
    """Train a model, with a consistency loss of several draws; return its accuracy."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    mask = data.train_mask
    for epoch in range(EPOCHS):
        model.train()
        optimizer.zero_grad()
        outs = torch.stack([model(data.x, *graph) for _ in range(draws)])
        label = data.y[mask].expand(draws, -1)
        loss = F.cross_entropy(outs[:, mask].flatten(0, 1), label.flatten())
        if draws > 1:  # First the labels, then the others.
            loss = loss + min(1.0, epoch / 60) * consistency_loss(outs)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        hit = model(data.x, *graph).argmax(dim=-1) == data.y
    return 100 * float(hit[data.test_mask].float().mean())


def compare(x: Tensor, y: Tensor, seed: int) -> dict[str, float]:
    """Return the test accuracy of each model on a split."""
    seed_everything(seed)
    split = RandomNodeSplit('random', num_train_per_class=5, num_val=0, num_test=1_000)
    data, near = split(Data(x=x, y=y)), SimilarityKNNGraph(10)(Data(x=x)).edge_index
    sizes = 64, 64, 2, 10
    accuracy = {}
    mlp = MLP([64, 64, 10], dropout=0.5, act='elu', norm=None)
    accuracy['no graph'] = train(mlp, data)
    for draws, loss in ((1, ''), (2, ', consistent')):
        sage = GraphSAGE(*sizes, dropout=0.5, act='elu')
        accuracy[f'nearest rows{loss}'] = train(sage, data, near, draws=draws)
        net = GSLNet(*sizes, similarity='linear', z_channels=-1)
        accuracy[f'learned graph{loss}'] = train(net, data, draws=draws)
    return accuracy


if __name__ == '__main__':
    features, digits = load_digits(return_X_y=True)
    x = torch.from_numpy(StandardScaler().fit_transform(features)).float()
    runs = [compare(x, torch.from_numpy(digits), seed) for seed in range(SEEDS)]
    for name in runs[0]:
        print(f'{name:<26}{sum(run[name] for run in runs) / SEEDS:.1f} %')
