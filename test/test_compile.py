"""Whole models under `torch.compile`; graph breaks are allowed."""

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.ops import noise_free

# The tracer looks at this attribute itself, and hides the warning from users.
pytestmark = [
    pytest.mark.filterwarnings(
        'ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning'
    ),
    # It instantiates functions with a gradient of their own by itself.
    pytest.mark.filterwarnings(
        'ignore:.*should not be instantiated:DeprecationWarning'
    ),
]

N, IN, HIDDEN, OUT = 12, 5, 5, 5


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def make(options, num_layers=2):
    torch.manual_seed(5)
    return GSLNet(IN, HIDDEN, num_layers, OUT, dropout=0.0, k=3, **options)


def features(num_nodes=N):
    return torch.randn(num_nodes, IN, generator=seeded(3))


@pytest.mark.slow
def test_inductor():
    model = make({}, num_layers=1).eval()
    compiled = torch.compile(model)
    with torch.no_grad():
        torch.testing.assert_close(compiled(features()), model(features()))


# The same tracing of forward and backward without the minute of compiling C++.
@pytest.mark.parametrize(
    ('num_nodes', 'options'),
    [
        (N, {}),
        pytest.param(
            N,
            {'num_transition_nodes': 7, 'num_nodes': N},
            marks=pytest.mark.slow,
        ),
        pytest.param(150, {'method': 'race'}, marks=pytest.mark.slow),
        pytest.param(
            *(150, {'method': 'race', 'scale': 10.0, 'similarity': 'linear'}),
            marks=pytest.mark.slow,
        ),
    ],
    ids=['full', 'transition', 'race', 'sharp race'],
)
def test_evaluation_and_training_step(num_nodes, options):
    runs = []
    for compiling in (False, True):
        model = make(options)
        run = torch.compile(model, backend='aot_eager') if compiling else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = features(num_nodes).requires_grad_()
        torch.manual_seed(1)
        out = run(x)
        out.square().sum().backward()
        gradients = [leaf.grad.clone() for leaf in (x, *model.parameters())]
        optimizer.step()
        model.eval()
        runs.append([out.detach(), *gradients, run(x).detach()])
    torch.testing.assert_close(*runs)
    assert torch._dynamo.utils.counters['frames']['ok'] > 0  # It did compile.


@pytest.mark.slow
@torch.no_grad()
def test_evaluation_by_tiles_is_not_traced(monkeypatch):
    model = make({}).eval()
    expected = model(features())
    monkeypatch.setattr(noise_free, '_MIN_PAIRS', 0)
    torch.testing.assert_close(torch.compile(model)(features()), expected)
