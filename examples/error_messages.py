"""Print the error messages of bad inputs.

Errors name the argument and its value, before anything is computed or written.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from torch_geometric_gsl import (
    GaussianSimilarity,
    GSLNet,
    GumbelKNNSampler,
    LatentGraphConv,
    NeuralGaussianSimilarity,
    TransitionGraphConv,
)

x = torch.randn(6, 4)
sampler = GumbelKNNSampler(NeuralGaussianSimilarity(4), k=3)
distinct = GumbelKNNSampler(NeuralGaussianSimilarity(4), k=3, replace=False)


class Command:
    """An object whose pickle runs a command when it is loaded."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ('echo',)


def load(content: object, size: int | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, 'model.pt')
        torch.save(content, path)
        path.write_bytes(path.read_bytes()[:size])
        GSLNet.load(path)


CASES: dict[str, Callable[[], object]] = {
    'NaN in the features': lambda: sampler(x.log()),
    'more neighbours than nodes': lambda: distinct(x[:2]),
    'a vector for a matrix': lambda: sampler(x[0]),
    'integer features': lambda: sampler(x.long()),
    'another width': lambda: sampler(torch.randn(6, 5)),
    'another dtype': lambda: LatentGraphConv(4, 2)(x.double()),
    'a temperature of zero': lambda: GumbelKNNSampler(sampler.similarity, tau=0.0),
    'a negative width of the bell': lambda: GaussianSimilarity(4, c=-1.0),
    'an unknown similarity': lambda: GSLNet(4, 8, 2, 3, similarity='euclidean'),
    'an unsorted batch': lambda: sampler(x, batch=torch.tensor([0, 1, 0, 1, 1, 1])),
    'edges to nowhere': lambda: sampler(x, torch.tensor([[0], [6]])),
    'another number of nodes': lambda: TransitionGraphConv(4, 2, num_nodes=9)(x),
    'a truncated file': lambda: load(x, size=100),
    'a file that runs a command': lambda: load(Command()),
}


def message_of(call: Callable[[], object]) -> str:
    try:
        call()
    except (OSError, TypeError, ValueError) as error:
        return f'{type(error).__name__}: {error}'
    raise SystemExit('no error')


if __name__ == '__main__':
    for title, call in CASES.items():
        print(f'{title}\n    {message_of(call)}')
