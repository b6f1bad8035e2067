"""The layer of several types of nodes, against samplers that are called one by one."""

import pytest
import torch
from hetero import (
    IN,
    IN_DOC,
    NEAR,
    OF,
    OUT,
    SIZE,
    make,
    rows,
    single,
)

from torch_geometric_gsl import (
    CosineSimilarity,
    HeteroLatentGraphConv,
    LinearSimilarity,
)

AGGREGATIONS = {
    'sum': lambda parts: sum(parts),
    'mean': lambda parts: sum(parts) / len(parts),
    'min': lambda parts: torch.stack(parts).amin(dim=0),
    'max': lambda parts: torch.stack(parts).amax(dim=0),
    'cat': lambda parts: torch.cat(parts, dim=1),
    None: lambda parts: torch.stack(parts, dim=1),
}


@pytest.mark.parametrize('aggr', AGGREGATIONS)
@pytest.mark.parametrize('is_plain', [False, True])
def test_how_several_relations_become_one(is_plain, aggr):
    options = {'root_weight': False, 'bias': False} if is_plain else {}
    conv, x, parts = make(aggr=aggr, **options).eval(), rows(), {}
    for (source, _, target), layer in conv.convs.items():
        pair = x[target] if source == target else (x[source], x[target])
        parts.setdefault(target, []).append(layer(pair))
    found = conv(x)
    assert list(found) == ['doc', 'word']  # Nothing leads to authors.
    for target, own in parts.items():
        expected = AGGREGATIONS[aggr](own)
        if not is_plain:
            root = x[target] @ conv.roots[target].weight.t()
            expected = expected + (root.unsqueeze(1) if aggr is None else root)
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
    assert [samplers[r].tau for r in relations] == [0.5, 0.1, 0.5]
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
