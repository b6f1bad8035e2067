"""Transforms of `torch.func`: equal to plain gradients, or one clear error."""

import pytest
import torch
from oracles import seeded
from test_public_interface import (
    CASES,
    IN,
    OUT,
    TRANSITION,
    N,
    features,
    numbers,
)
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vmap

from torch_geometric_gsl import (
    Budget,
    GSLNet,
    GumbelKNNSampler,
    HeteroLatentGraphConv,
    KNNEdgeConv,
    LatentGraphConv,
    LinearSimilarity,
    Similarity,
    TableNet,
    TransitionGraphConv,
)

# The methods, the forms of the graph, and blocks that are recomputed.
MODULES = {
    'net': lambda: GSLNet(IN, 8, 2, OUT),
    'net-transition': lambda: GSLNet(IN, 8, 2, OUT, **TRANSITION),
    'paper': lambda: GSLNet.paper(IN, 8, 2, OUT),
    'race': lambda: LatentGraphConv(IN, OUT, method='race'),
    'sharp-race': lambda: LatentGraphConv(IN, OUT, method='race', scale=30.0),
    'stream': lambda: LatentGraphConv(IN, OUT, method='stream', hard=True),
    'pool': lambda: LatentGraphConv(IN, OUT, method='pool', null_score=0.0),
    'null': lambda: LatentGraphConv(IN, OUT, method='race', null_score=0.0),
    'distinct': lambda: LatentGraphConv(IN, OUT, replace=False),
    'nearest': lambda: LatentGraphConv(IN, OUT, 'cosine', eval_k=3),
    'distance': lambda: LatentGraphConv(IN, OUT, 'distance', method='stream'),
    'blocks': lambda: LatentGraphConv(IN, OUT, budget=Budget(memory=64)),
    'transition': lambda: TransitionGraphConv(IN, OUT, N, 5),
    'sampler': lambda: GumbelKNNSampler.paper(LinearSimilarity(IN, OUT)),
    'table': lambda: TableNet(IN, 8, OUT, num_frequencies=0),
}
EACH = [pytest.param(make, id=name) for name, make in MODULES.items()]
# Their computation does not depend on the values of parameters.
MAPPED = KNNEdgeConv, Similarity
VMAP = r'torch.vmap is not supported by {}, whose'


def detached(module):
    return {name: value.detach() for name, value in module.named_parameters()}


def value_of(module, parameters, x):
    """The output with the same draws in each call."""
    torch.manual_seed(3)
    return numbers(functional_call(module, parameters, (x,)))


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('make', EACH)
def test_grad_equals_backward(make, training):
    torch.manual_seed(1)
    module = make().train(training)
    x = torch.randn(N, IN, generator=seeded())
    args = detached(module), x

    def loss(parameters, x):
        return value_of(module, parameters, x).square().sum()

    gradients, of_x = grad(loss, argnums=(0, 1))(*args)
    leaf = x.clone().requires_grad_()
    loss(dict(module.named_parameters()), leaf).backward()
    assert any(value.count_nonzero() for value in gradients.values())
    for name, parameter in module.named_parameters():
        expected = torch.zeros_like(parameter)
        if parameter.grad is not None:
            expected = parameter.grad
        torch.testing.assert_close(gradients[name], expected)
    torch.testing.assert_close(of_x, leaf.grad)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('make', EACH)
def test_jacrev_equals_the_jacobian(make, training):
    module = make().train(training)
    x = torch.randn(N, IN, generator=seeded())

    def run(x):
        return value_of(module, {}, x)

    jacobian = jacrev(run, chunk_size=1)(x)
    torch.testing.assert_close(jacobian, torch.autograd.functional.jacobian(run, x))


@pytest.mark.parametrize('transform', [jacrev, jacfwd])
def test_jacobian_in_evaluation(transform):
    module = GSLNet(IN, 8, 2, OUT).eval()
    x = torch.randn(N, IN)
    expected = torch.autograd.functional.jacobian(module, x)
    torch.testing.assert_close(transform(module)(x), expected)


def test_random_draws_name_the_transforms_that_work():
    module = LatentGraphConv(IN, OUT)
    x = torch.randn(N, IN)
    with pytest.raises(RuntimeError, match="pass 'chunk_size=1' to"):
        jacrev(module)(x)
    with pytest.raises(RuntimeError, match='forward-mode derivatives are not'):
        jvp(module, (x,), (x,))
    with pytest.raises(RuntimeError, match='gradient of RelaxedWeights cannot'):
        grad(lambda x: grad(lambda x: module(x).sum())(x).sum())(x)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('factory', CASES)
def test_vmap_equals_a_loop_or_names_the_module(factory, training):
    module = factory().train(training)
    x = features(module)
    name = type(module).__name__
    copies = {
        key: torch.stack([value, value + 0.1])
        for key, value in detached(module).items()
    }
    inputs = torch.stack([torch.randn(N, IN)] * 2)
    if isinstance(module, HeteroLatentGraphConv):
        inputs = {key: torch.stack([rows, rows]) for key, rows in x.items()}
    with pytest.raises(RuntimeError, match=VMAP.format(name)):
        vmap(module, randomness='different')(inputs)

    def run(parameters):
        return functional_call(module, parameters, (x,))

    if not isinstance(module, MAPPED):
        with pytest.raises(RuntimeError, match=VMAP.format(name)):
            vmap(run, randomness='different')(copies)
    elif not training:
        both = [{key: value[i] for key, value in copies.items()} for i in (0, 1)]
        torch.testing.assert_close(vmap(run)(copies), torch.stack([*map(run, both)]))


@pytest.mark.parametrize('make', EACH)
def test_vmap_over_gradients_of_an_ensemble_raises(make):
    module = make()
    x = torch.randn(N, IN)
    copies = {k: torch.stack([v, v]) for k, v in detached(module).items()}
    run = vmap(grad(lambda parameters: value_of(module, parameters, x).sum()))
    with pytest.raises(RuntimeError, match=VMAP.format(type(module).__name__)):
        run(copies)
