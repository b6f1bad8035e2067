"""The layer of several types of nodes, against samplers that are called one by one."""

import pytest
import torch
from hetero import (
    IN,
    IN_DOC,
    NEAR,
    OF,
    OUT,
    RELATIONS,
    SIZE,
    TAU,
    K,
    make,
    rows,
    single,
)
from oracles import seeded, to_matrix

from torch_geometric_gsl import (
    CosineSimilarity,
    GumbelKNNSampler,
    HeteroLatentGraphConv,
    LinearSimilarity,
    NeuralGaussianSimilarity,
)

AGGREGATIONS = {
    'sum': lambda parts: sum(parts),
    'mean': lambda parts: sum(parts) / len(parts),
    'min': lambda parts: torch.stack(parts).amin(dim=0),
    'max': lambda parts: torch.stack(parts).amax(dim=0),
    'cat': lambda parts: torch.cat(parts, dim=1),
    None: lambda parts: torch.stack(parts, dim=1),
}


def plain_graph(conv, relation, x, generator, training):
    """Draw the graph of one relation by a sampler of its own, and its messages."""
    source, _, target = relation
    own = conv.convs[relation]
    similarity = NeuralGaussianSimilarity(OUT).double()
    similarity.load_state_dict(own.sampler.similarity.state_dict())
    sampler = GumbelKNNSampler(similarity, K, TAU, method='dense').train(training)
    messages = x[source] @ own.lin.weight.t()
    pair = messages
    if source != target:
        pair = messages, x[target] @ own.lin_dst.weight.t()
    graph = sampler(pair, generator=generator)
    return to_matrix(*graph, len(x[target]), len(x[source])), messages


@pytest.mark.parametrize('aggr', AGGREGATIONS)
@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('flags', [(True, True), (False, False)])
def test_a_loop_over_the_relations(flags, training, aggr):
    root_weight, bias = flags
    options = {'root_weight': root_weight, 'bias': bias, 'method': 'dense'}
    conv = make(aggr=aggr, **options).train(training)
    x, generator = rows(), seeded(7)
    parts = {}
    for relation in RELATIONS:
        matrix, messages = plain_graph(conv, relation, x, generator, training)
        parts.setdefault(relation[2], []).append(matrix @ messages)
    found = conv(x, generator=seeded(7))
    assert list(found) == ['doc', 'word']  # Nothing leads to authors.
    for target, own in parts.items():
        expected = AGGREGATIONS[aggr](own)
        if root_weight:
            root = x[target] @ conv.roots[target].weight.t()
            expected = expected + (root.unsqueeze(1) if aggr is None else root)
        if bias:
            expected = expected + conv.biases[target]
        torch.testing.assert_close(found[target], expected)


def test_options_of_relations():
    trained = LinearSimilarity(OUT)
    relations = {
        IN_DOC: {'similarity': trained, 'k': 2, 'hard': True},
        NEAR: {'z_channels': -1, 'tau': 0.1, 'null_score': 0.0},
        OF: {},
    }
    options = {'similarity_kwargs': {'c_scale': 0.3}, 'scale': 2.0, 'loop': False}
    conv = HeteroLatentGraphConv(IN, OUT, relations, k=4, **options)
    samplers = {relation: own.sampler for relation, own in conv.convs.items()}
    assert [samplers[r].k for r in relations] == [2, 4, 4]
    assert [samplers[r].tau for r in relations] == [0.25, 0.1, 0.25]
    assert [samplers[r].hard for r in relations] == [True, False, False]
    assert [samplers[r].null_score is None for r in relations] == [True, False, True]
    assert {s.scale for s in samplers.values()} == {2.0}
    assert samplers[IN_DOC].similarity is trained
    assert samplers[NEAR].similarity.in_channels == IN['doc']
    assert samplers[OF].similarity.c_scale == 0.3
    assert samplers[OF].similarity is not samplers[NEAR].similarity
    # What is of the similarity goes with it, and stays where it is the same.
    relations = {IN_DOC: {'similarity': 'cosine'}, OF: {'similarity': 'linear'}}
    options = {'similarity': 'linear', 'similarity_kwargs': {'feature_weights': True}}
    named = HeteroLatentGraphConv(IN, OUT, relations, **options)
    other, same = (own.sampler.similarity for own in named.convs.values())
    assert isinstance(other, CosineSimilarity)
    assert same.feature_weight is not None
    # A similarity of the layer that is a module is one for all.
    shared = HeteroLatentGraphConv(IN, OUT, [IN_DOC, OF], LinearSimilarity(OUT))
    one, other = (own.sampler.similarity for own in shared.convs.values())
    assert one is other
    mixed = HeteroLatentGraphConv(
        IN,
        OUT,
        {IN_DOC: {}, OF: {'z_channels': None}},
        z_channels=2,
    )
    x = single(rows())
    words = {t: torch.randn(SIZE[t], 2) for t in ('doc', 'word')}
    assert mixed(x, z_dict=words)['doc'].shape == (12, OUT)


def test_repr():
    conv = HeteroLatentGraphConv({'word': 8, 'doc': 16}, 32, [IN_DOC], aggr=None)
    assert str(conv) == (
        "HeteroLatentGraphConv({'word': 8, 'doc': 16}, 32, "
        "relations=[('word', 'in', 'doc')], aggr=None)"
    )


NAMES = ['type', 'forward', 'a.b', 'a b', 'T', 'a%2Eb']


@pytest.mark.parametrize('name', [*NAMES, 'a|b', ':', '__dict__', 'a___b'])
def test_any_name_of_a_type(name):
    torch.manual_seed(0)
    others = [other for other in NAMES if other != name]
    relations = [(name, other, 'item') for other in others]
    relations += [('item', 'of', name), ('item', 'b', name)]
    conv = HeteroLatentGraphConv({name: 4, 'item': 3}, 2, relations, k=2)
    assert len({conv.convs[relation] for relation in relations}) == len(relations)
    x = {name: torch.randn(9, 4), 'item': torch.randn(8, 3)}
    assert conv.eval()(x).keys() == {name, 'item'}
    twin = HeteroLatentGraphConv({name: 4, 'item': 3}, 2, relations, k=2).eval()
    twin.load_state_dict(conv.state_dict())
    for kind, out in conv(x).items():
        assert torch.equal(twin(x)[kind], out)
