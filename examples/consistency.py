"""Train with five labels per class: two drawn graphs shall give the same prediction.

The consistency loss of GRAND (https://arxiv.org/abs/2005.11079) lets nodes without a
label train the network: the distance of the predictions of several draws to their
sharpened mean. Data: handwritten digits, no graph. The controls, models without a
learned graph, are GraphSAGE on the nearest rows and an MLP. Test accuracy of the last
epoch, mean over the splits.

    python examples/consistency.py
"""

import argparse

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


def consistency_loss(outs: Tensor, temperature: float = 0.5) -> Tensor:
    """Return the distance of draws [draws, nodes, classes] to their sharpened mean."""
    share = outs.softmax(dim=-1)
    sharpened = (share.mean(dim=0).log() / temperature).softmax(dim=-1).detach()
    return (share - sharpened).square().sum(dim=-1).mean()


def train(
    model: torch.nn.Module, data: Data, *graph: Tensor, epochs: int, draws: int = 1
) -> float:
    """Train a model, with a consistency loss of several draws; return its accuracy."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    mask = data.train_mask
    for epoch in range(epochs):
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
    parser.add_argument('--epochs', type=int, default=150)
    parser.add_argument('--seeds', type=int, default=3, help='number of splits')
    args = parser.parse_args()
    x, y = load_digits(return_X_y=True)
    x = torch.from_numpy(StandardScaler().fit_transform(x)).float()
    split = RandomNodeSplit('random', num_train_per_class=5, num_val=0, num_test=1_000)
    sizes = 64, 64, 2, 10
    options = {'similarity': 'linear', 'z_channels': -1}
    accuracy: dict[str, list[float]] = {}
    for seed in range(args.seeds):
        seed_everything(seed)
        data = split(Data(x=x, y=torch.from_numpy(y)))
        near = SimilarityKNNGraph(10)(Data(x=x)).edge_index
        models = {
            'no graph': (MLP([64, 64, 10], dropout=0.5, act='elu', norm=None),),
            'nearest rows': (GraphSAGE(*sizes, dropout=0.5, act='elu'), near),
            'nearest rows, consistent': (
                GraphSAGE(*sizes, dropout=0.5, act='elu'),
                near,
            ),
            'learned graph': (GSLNet(*sizes, **options),),
            'learned graph, consistent': (GSLNet(*sizes, **options),),
        }
        for name, model in models.items():
            draws = 2 if name.endswith('consistent') else 1
            found = train(*model[:1], data, *model[1:], epochs=args.epochs, draws=draws)
            accuracy.setdefault(name, []).append(found)
    for name, shares in accuracy.items():
        print(f'{name:<26}{sum(shares) / len(shares):.1f} %')


if __name__ == '__main__':
    main()
