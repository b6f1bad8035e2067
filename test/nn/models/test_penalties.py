"""Regularizers by name in the loss of a model."""

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.nn.models.penalties import REGULARIZERS
from torch_geometric_gsl.ops import regularizers as ops

N = 30
X = torch.randn(N, 6, generator=seeded(0))
Y = torch.arange(N) % 3
MASK = torch.arange(15)
EDGES = torch.randint(N, (2, 80), generator=seeded(1))


def make(regularizers=None, **options):
    torch.manual_seed(0)
    options = {'dropout': 0.0, 'k': 3, 'scale': 5.0} | options
    return GSLNet(6, 8, 2, 3, regularizers=regularizers, **options)


def value(name, graph, edge_index):
    if name == 'smoothness':
        return ops.smoothness(X, *graph)
    if name == 'prior':
        return ops.kl_to_prior(*graph, edge_index, torch.ones(80), N)
    full = {'degree': 'degree_log_barrier', 'entropy': 'edge_entropy'}.get(name, name)
    return getattr(ops, full)(*graph, N)


@pytest.mark.parametrize('observed', ['candidates', 'prior'])
@pytest.mark.parametrize('names', [[name] for name in REGULARIZERS] + [[*REGULARIZERS]])
def test_loss(names, observed):
    weights = {name: 0.5 + number for number, name in enumerate(names)}
    model = make(weights, observed=observed)
    generator = seeded(3)
    loss = model.loss(X, Y, MASK, edge_index=EDGES, generator=generator)
    plain, other = make(observed=observed), seeded(3)
    expected = plain.loss(X, Y, MASK, edge_index=EDGES, generator=other)
    assert torch.equal(generator.get_state(), other.get_state())
    for graph in plain.graphs(X, EDGES, generator=seeded(3)):
        for name, weight in weights.items():
            expected = expected + weight * value(name, graph, EDGES) / 2
    torch.testing.assert_close(loss, expected)


def test_none_is_the_plain_loss():
    generator = seeded(3)
    loss = make().loss(X, Y, MASK, generator=generator)
    out = make()(X, generator=seeded(3))
    expected = torch.nn.functional.cross_entropy(out[MASK], Y[MASK])
    torch.testing.assert_close(loss, expected)
    state = generator.get_state()
    assert torch.equal(make({}).loss(X, Y, MASK, generator=seeded(3)), loss)
    other = seeded(3)
    make()(X, generator=other)
    assert torch.equal(other.get_state(), state)  # No further graph is drawn.


@pytest.mark.parametrize('name', ['smoothness', 'frobenius', 'entropy', 'prior'])
def test_they_train_the_similarity(name):
    def gradient(regularizers):
        model = make(regularizers)
        model.loss(X, Y, MASK, edge_index=EDGES, generator=seeded(3)).backward()
        return model.convs[0].sampler.similarity.w_b.grad

    assert gradient({name: 10.0}).isfinite().all()
    assert not torch.allclose(gradient({name: 10.0}), gradient(None), rtol=1e-3)


def test_graphs_of_several_relations():
    weights = {'entropy': 0.5, 'overlap': 2.0}
    model = make(weights, num_relations=2)
    generator, other = seeded(3), seeded(3)
    loss = model.loss(X, Y, MASK, generator=generator)
    plain = make(num_relations=2)
    expected = plain.loss(X, Y, MASK, generator=other)
    assert torch.equal(generator.get_state(), other.get_state())
    h, other = X, seeded(3)
    for number, conv in enumerate(plain.convs):
        twin = torch.Generator().set_state(other.get_state())
        first, second = conv.graphs(h, generator=twin)
        for graph in (first, second):
            expected = expected + 0.5 * ops.edge_entropy(*graph, N) / 4
        expected = expected + 2 * ops.relation_overlap([first, second], N) / 2
        h = conv(h, generator=other)
        h = h if number else plain.act(h)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    mine = model.convs[0].relations[1].sampler.similarity.w_b.grad
    plain.loss(X, Y, MASK, generator=seeded(3)).backward()
    assert not torch.allclose(
        mine, plain.convs[0].relations[1].sampler.similarity.w_b.grad, rtol=1e-3
    )


def test_batches_and_sparse_features():
    batch = torch.arange(3).repeat_interleave(10)
    model = make({'smoothness': 1.0})
    dense = model.loss(X.relu(), Y, MASK, batch=batch, generator=seeded(3))
    sparse = X.relu().to_sparse_csr()
    found = model.loss(sparse, Y, MASK, batch=batch, generator=seeded(3))
    torch.testing.assert_close(found, dense, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ('regularizers', 'error', 'text'),
    [
        (['smoothness'], TypeError, r"'regularizers' must be a dict \(got list\)"),
        ({'sparsity': 1.0}, ValueError, r"must be one of .* \(got 'sparsity'\)"),
        ({'degree': '1'}, TypeError, r"regularizers\['degree'\]' must be a number"),
        ({'degree': float('nan')}, ValueError, 'must be finite'),
    ],
)
def test_bad_regularizers(regularizers, error, text):
    with pytest.raises(error, match=text):
        make(regularizers)


def test_what_they_cannot_serve():
    with pytest.raises(ValueError, match='no meaning with transition nodes'):
        GSLNet(6, 8, 2, 3, 'linear', 4, N, regularizers={'degree': 1.0})
    text = r"'num_relations' must be at least 2 with the regularizer 'overlap' \(got "
    for number in (None, 1):
        with pytest.raises(ValueError, match=rf'{text}{number}'):
            make({'overlap': 1.0}, num_relations=number)
    with pytest.raises(ValueError, match="'edge_index' must be given to the regular"):
        make({'prior': 1.0}).loss(X, Y, MASK)


def test_repr():
    assert "regularizers={'degree': 2.0}" in repr(make({'degree': 2}))
    assert 'regularizers' not in repr(make())
