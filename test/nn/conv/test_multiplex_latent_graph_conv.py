"""Several relations of one layer, against a loop over their samplers."""

import pytest
import torch
from multiplex import (
    BELL,
    EACH,
    IN,
    MESSAGES,
    OPTIONS,
    OUT,
    TRAINING,
    K,
    N,
    R,
    given,
    make,
)
from oracles import check_gradients, seeded, to_matrix
from sampling import normal

from torch_geometric_gsl import (
    LatentGraphConv,
    MultiplexLatentGraphConv,
    NeuralGaussianSimilarity,
)


def by_loop(conv, x, generator=None, z=None, **kwargs):
    """Return the output and the graphs, by samplers that are called in turn."""
    shares = conv.shares(x).expand(x.size(0), -1)
    total, graphs = torch.zeros(x.size(0), OUT, dtype=x.dtype), []
    for number, relation in enumerate(conv.relations):
        h = x @ relation.lin.weight.t()
        own = h if relation.z_channels is None else x
        graph = relation.sampler(own if z is None else z, generator=generator, **kwargs)
        out = to_matrix(*graph, x.size(0), x.size(0)) @ h
        if relation.add_self_loops:
            out = (out + h) / 2
        total = total + shares[:, number : number + 1] * out
        graphs.append(graph)
    if conv.lin_root is not None:
        total = total + x @ conv.lin_root.weight.t()
    return (total if conv.bias is None else total + conv.bias), graphs


@EACH
@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_a_loop_over_samplers(name, method):
    conv, x = make(method=method, **OPTIONS[name]), normal(N, IN)
    out = conv(x, generator=seeded(2), **given(name))
    expected, graphs = by_loop(conv, x, seeded(2), **given(name))
    torch.testing.assert_close(out, expected)
    found = conv.graphs(x, generator=seeded(2), **given(name))
    assert len(found) == R
    for graph, other in zip(found, graphs, strict=True):
        assert torch.equal(graph.edge_index, other.edge_index)
        assert torch.equal(graph.edge_weight, other.edge_weight)


@EACH
def test_evaluation_is_the_dense_definition(name):
    conv, x = make(method='dense', **OPTIONS[name]).eval(), normal(N, IN)
    expected, _ = by_loop(conv, x, **given(name))
    torch.testing.assert_close(conv(x, **given(name)), expected)


@EACH
@TRAINING
def test_the_mixture_of_graphs(name, training):
    conv, x = make(**OPTIONS[name]).train(training), normal(N, IN)
    mixed = conv.graph(x, generator=seeded(2), **given(name))
    graphs = conv.graphs(x, generator=seeded(2), **given(name))
    shares = conv.shares(x).expand(N, -1)
    expected = sum(
        shares[:, number : number + 1] * to_matrix(*graph, N, N)
        for number, graph in enumerate(graphs)
    )
    torch.testing.assert_close(to_matrix(*mixed, N, N), expected)
    key = mixed.edge_index[1] * N + mixed.edge_index[0]
    assert bool((key.diff() > 0).all())  # Sorted by target, no duplicates.
    if name != 'null':
        torch.testing.assert_close(expected.sum(dim=1), torch.ones(N).double())
    if training and name in ('plain', 'node'):
        # With equal messages it is the graph along which the layer sums.
        h = x @ conv.relations[0].lin.weight.t()
        out = to_matrix(*mixed, N, N) @ h + x @ conv.lin_root.weight.t() + conv.bias
        torch.testing.assert_close(conv(x, generator=seeded(2)), out)


@EACH
@TRAINING
def test_one_relation_is_the_layer_of_one_graph(name, training):
    conv, x = make(1, **OPTIONS[name]).train(training), normal(N, IN)
    own = {'shares', 'same_messages'}
    options = {key: value for key, value in OPTIONS[name].items() if key not in own}
    single = LatentGraphConv(IN, OUT, k=K, tau=0.4, **{'scale': 1.5, **options})
    single.double().train(training)
    state = {
        key.removeprefix('relations.0.'): value
        for key, value in conv.state_dict().items()
        if not key.startswith('mixture')
    }
    single.load_state_dict(state)
    results = []
    for layer in (conv, single):
        out = layer(x, generator=seeded(2), **given(name))
        out.square().sum().backward()
        graph = layer.graph(x, generator=seeded(2), **given(name))
        grads = {
            key.removeprefix('relations.0.'): parameter.grad
            for key, parameter in layer.named_parameters()
            if not key.startswith('mixture')
        }
        results.append((out.detach(), *(part.detach() for part in graph), grads))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_one_relation_begins_as_the_layer_of_one_graph():
    options = {'similarity_kwargs': BELL | {'feature_weights': True}}
    conv = MultiplexLatentGraphConv(IN, OUT, 1, z_channels=-1, **options)
    bell = conv.relations[0].sampler.similarity
    assert bell.bias_b.tolist() == [0.0]
    assert bell.feature_weight.tolist() == [1.0] * IN
    given = NeuralGaussianSimilarity(OUT)
    conv = MultiplexLatentGraphConv(IN, OUT, 1, given)
    assert conv.relations[0].sampler.similarity is given


@EACH
@TRAINING
def test_gradients_reach_every_relation_and_the_shares(name, training):
    conv, x = make(**OPTIONS[name]).train(training), normal(N, IN)
    conv(x, **given(name)).square().sum().backward()
    check_gradients(conv)


@MESSAGES
def test_relations_begin_apart_and_stay_so(same_messages):
    torch.manual_seed(0)
    options = {'similarity_kwargs': BELL, 'same_messages': same_messages}
    conv = MultiplexLatentGraphConv(IN, OUT, 2, k=K, **options)
    centres = [
        relation.sampler.similarity.response(torch.zeros(1, OUT)).params[0]
        for relation in conv.relations
    ]
    torch.testing.assert_close(torch.cat(centres).flatten(), torch.tensor([-0.5, 0.5]))
    x = normal(N, IN, dtype=torch.float32)
    conv(x).square().sum().backward()
    first, second = (r.sampler.similarity.bias_b.grad for r in conv.relations)
    assert not torch.allclose(first, second)
    lins = {id(relation.lin) for relation in conv.relations}
    assert len(lins) == (1 if same_messages else 2)


@EACH
def test_permutation_equivariance(name):
    conv, x = make(**OPTIONS[name]).eval(), normal(N, IN)
    order = torch.randperm(N, generator=seeded(4))
    moved = {key: value[order] for key, value in given(name).items()}
    expected = conv(x, **given(name))[order]
    torch.testing.assert_close(conv(x[order], **moved), expected)


def test_samplers_of_as_many_relations_are_shared():
    first, second, third = (
        MultiplexLatentGraphConv(IN, OUT, count, k=K, similarity_kwargs=BELL)
        for count in (2, 2, 3)
    )
    second.share_sampler(first)
    for own, other in zip(second.relations, first.relations, strict=True):
        assert own.sampler is other.sampler
    with pytest.raises(ValueError, match=r"'other' must have 2 relations \(got 3\)"):
        second.share_sampler(third)
