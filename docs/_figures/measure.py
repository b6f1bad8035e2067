"""Print the measurements that the page "Decisions" quotes.

Run ``PYTHONPATH=paper python docs/_figures/measure.py [name ...]``. It takes a few
minutes on one core.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import torch
from sklearn.datasets import load_digits
from tails import groups, rounds, sharp, tail
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from reproduction.datasets import load_dataset, paper_split
from torch_geometric_gsl import (
    GaussianSimilarity,
    GSLNet,
    GumbelKNNSampler,
    LatentGraphConv,
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.ops import race_block
from torch_geometric_gsl.ops.scores import Gaussian, unit_rows
from torch_geometric_gsl.transforms import SampledLatentGraph


def digits(num_nodes: int = 1797) -> Data:
    """Return the first handwritten digits of scikit-learn, standardised; no graph."""
    features, labels = load_digits(return_X_y=True)
    x = torch.from_numpy(features[:num_nodes]).float()
    x = (x - x.mean(dim=0)) / x.std(dim=0).clamp_min(1e-6)
    return Data(x=x, y=torch.from_numpy(labels[:num_nodes]).long())


def flat() -> None:
    """Print the effective candidates of pi and of the noise-free weights."""
    score = GaussianSimilarity(64)(digits().x)
    for scale in (1.0, 5.0, 20.0):
        pi = effective(torch.softmax(scale * score, dim=1))
        relaxed = effective(torch.softmax(scale * score / 0.25, dim=1))
        print(f'scale {scale:>4}: pi {pi:.0f}, weights at tau 0.25 {relaxed:.0f}')


def effective(weight: Tensor) -> float:
    """Compute the mean perplexity of rows, the exponential of their entropy."""
    return float(torch.special.entr(weight).sum(dim=1).exp().mean())


def norm() -> None:
    """Print the range of phi for unit rows, and with one norm for the matrix."""
    x = digits().x
    for name, z in (('rows', unit_rows(x)), ('matrix', x / torch.linalg.norm(x))):
        bell = GaussianSimilarity(64)
        phi = Gaussian.value(z @ z.t(), bell.b, bell.c)
        print(f'norm of {name}: phi from {phi.min():.6f} to {phi.max():.6f}')


def root() -> None:
    """Print the test accuracy with and without the root weight."""
    for root_weight in (True, False):
        shares = [100 * accuracy(seed, root_weight) for seed in range(3)]
        text = ', '.join(f'{share:.1f}' for share in shares)
        print(f'root_weight={root_weight}: {text} %')


def accuracy(seed: int, root_weight: bool) -> float:
    torch.manual_seed(seed)
    data = paper_split(digits(600), seed)
    model = GSLNet.paper(64, 32, 2, 10, root_weight=root_weight)
    train(model, data, 60, model.parameters())
    hit = model.eval()(data.x).argmax(dim=1) == data.y
    return float(hit[data.test_mask].float().mean())


def train(
    model: torch.nn.Module, data: Data, epochs: int, params: Iterable[Any]
) -> list[float]:
    """Train a model, and return the loss before each step."""
    optimizer = torch.optim.Adam(params, lr=0.01)
    losses = []
    for _ in range(epochs):
        optimizer.zero_grad()
        out = model(data.x)
        loss = cross_entropy(out[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def theta() -> None:
    """Print the training loss with parameters n W, and with parameters W."""
    data = paper_split(digits())
    n = data.num_nodes
    for name, factor in (('n W', 1), ('W', n)):
        torch.manual_seed(0)
        model = GSLNet.paper(64, 32, 2, 10, num_transition_nodes=100, num_nodes=n)
        # Adam with the rate n * lr changes n W as Adam with the rate lr changes W.
        parameters = list(model.named_parameters())
        theta_params = [p for key, p in parameters if 'theta' in key]
        weights = [p for key, p in parameters if 'theta' not in key]
        params = [{'params': theta_params, 'lr': 0.01 * factor}, {'params': weights}]
        losses = train(model, data, 60, params)
        text = ', '.join(f'{losses[step]:.3g}' for step in (0, 1, 5, 20, 59))
        print(f'parameters hold {name}: loss after 0, 1, 5, 20 and 59 steps {text}')


def half() -> None:
    """Print the largest error of phi in bfloat16 and in float32."""
    torch.manual_seed(0)
    z = unit_rows(digits().x)
    module = NeuralGaussianSimilarity(64)
    b, c = (p.detach().unsqueeze(1) for p in module.response(z).params)
    exact = Gaussian.value(z.double() @ z.double().t(), b.double(), c.double())
    for dtype in (torch.bfloat16, torch.float32):
        low = z.to(dtype)
        phi = Gaussian.value(low @ low.t(), b.to(dtype), c.to(dtype))
        error = (phi.double() - exact).abs().max()
        print(f'{dtype}: largest error {error:.2g}')


def neighbours() -> None:
    """Print the share of the k nearest candidates in the noise-free weight."""
    x = digits().x
    for scale in (1.0, 5.0, 20.0):
        similarity = GaussianSimilarity(64)
        sampler = GumbelKNNSampler.paper(similarity, k=5, scale=scale).eval()
        edge_index, _ = sampler(x)
        weight = torch.softmax(scale * similarity(x) / sampler.tau, dim=1)
        share = weight[edge_index[1], edge_index[0]].sum() / x.size(0)
        print(
            f'scale {scale:>4}: the 5 nearest of {x.size(0)} hold {100 * share:.2f} %'
        )


def sparse() -> None:
    """Time X W for features as sparse as those of CiteSeer."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    warnings.filterwarnings('ignore', message='Sparse')  # CSR is in beta state.
    x = (torch.rand(3327, 3703) < 0.0085).float()
    weight = torch.randn(3703, 64)
    times = [best_time(lambda x=x: x @ weight) for x in (x, x.to_sparse_csr())]
    print(f'dense {times[0]:.2f} ms, CSR {times[1]:.2f} ms: {times[0] / times[1]:.0f}x')


def best_time(run: Callable[[], object]) -> float:
    """Measure the shortest of 30 runs, in milliseconds."""
    seconds = []
    for _ in range(30):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return 1000 * min(seconds)


def shared() -> None:
    """Measure the variance of the gradient if blocks of rows share proposals."""
    data = digits()
    draw_uniform = race_block.draw_uniform
    torch.manual_seed(0)
    conv = LatentGraphConv.paper(64, 32)

    def gradients() -> Tensor:
        grads = []
        for seed in range(100):
            torch.manual_seed(seed)
            conv.zero_grad()
            conv(data.x).square().mean().backward()
            grads.append(torch.cat([p.grad.flatten() for p in conv.parameters()]))
        return torch.stack(grads)

    alone = gradients().var(dim=0).sum()
    for size in (4, 16, 64, 256):

        def draw(state: Tensor, *args: Any, size: int = size) -> tuple[Tensor, ...]:
            source, *arrivals = draw_uniform(state, *args)
            races, width = torch.arange(source.size(0)), size * conv.sampler.k
            # Each race takes the sources of the same race of the block's first row.
            leaders = races // width * width + races % conv.sampler.k
            return source[leaders], *arrivals

        with mock.patch.object(race_block, 'draw_uniform', draw):
            ratio = float(gradients().var(dim=0).sum() / alone)
        print(f'blocks of {size} rows: variance of the gradient x {ratio:.2f}')


def sampled() -> None:
    """Print the validation accuracy of a GCN on sampled graphs of several scales."""
    for name in ('wine', 'breast_cancer', 'digits'):
        table = load_dataset(name)
        for scale in (1.0, 5.0, 10.0, 20.0, 40.0):
            accuracies = [sampled_accuracy(table, scale, seed) for seed in range(3)]
            print(f'{name}, scale {scale:g}: {100 * sum(accuracies) / 3:.1f} %')


def sampled_accuracy(table: Data, scale: float, seed: int) -> float:
    """Return the best validation accuracy of 150 epochs."""
    data = SampledLatentGraph(5, scale=scale, seed=seed)(paper_split(table, seed))
    torch.manual_seed(seed)
    x = data.x
    net = GCN(x.size(1), 64, 2, int(data.y.max()) + 1, dropout=0.5)
    optimizer = torch.optim.AdamW(net.parameters(), 0.01, weight_decay=5e-4)
    best = 0.0
    for _ in range(150):
        optimizer.zero_grad()
        out = net.train()(x, data.edge_index, data.edge_weight)
        cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
        with torch.no_grad():
            out = net.eval()(x, data.edge_index, data.edge_weight)
        hit = out.argmax(dim=1) == data.y
        best = max(best, float(hit[data.val_mask].float().mean()))
    return best


MEASUREMENTS = {
    run.__name__: run
    for run in (
        flat,
        norm,
        root,
        theta,
        half,
        neighbours,
        sparse,
        tail,
        sharp,
        shared,
        groups,
        rounds,
        sampled,
    )
}

if __name__ == '__main__':
    for name in sys.argv[1:] or MEASUREMENTS:
        print(f'-- {name}')
        MEASUREMENTS[name]()
