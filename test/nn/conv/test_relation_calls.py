"""What the layer of each relation is called with, and what is refused before."""

import pytest
import torch
from hetero import (
    BATCH,
    HAS,
    IN,
    IN_DOC,
    NEAR,
    OF,
    OUT,
    RELATIONS,
    SIZE,
    make,
    rows,
    single,
)
from sampling import normal

from torch_geometric_gsl import HeteroLatentGraphConv

X = rows()
E_ROWS = {t: normal(SIZE[t], 2, seed=len(t)) for t in IN}
EMBEDDING = {'compare': 'embedding', 'embedding_channels': 2}


def listen(conv):
    """Return what the layers of relations will be called with."""
    calls = {}
    for relation in conv.relations:
        conv.convs[relation].register_forward_pre_hook(
            lambda _, args, kwargs, relation=relation: calls.update(
                {relation: kwargs | {'args': args}}
            ),
            with_kwargs=True,
        )
    return calls


def check_calls(found, expected):
    """Check the arguments of each relation's layer, all of them by name."""
    assert list(found) == list(expected)
    for relation, args in expected.items():
        own = {key: value for key, value in found[relation].items() if key != 'args'}
        assert found[relation]['args'] == ()
        assert own.pop('generator') is None
        assert own.pop('return_graph') is False
        torch.testing.assert_close(own, args, rtol=0, atol=0)


def test_arguments():
    conv = make()
    calls, edges = listen(conv), torch.tensor([[0, 1], [0, 0]])
    conv(X, {IN_DOC: edges})
    check_calls(
        calls,
        {
            IN_DOC: {'x': X['doc'], 'edge_index': edges, 'context': X['word']},
            NEAR: {'x': X['doc'], 'edge_index': None},
            OF: {'x': X['doc'], 'edge_index': None, 'context': X['author']},
            HAS: {'x': X['word'], 'edge_index': None, 'context': X['doc']},
        },
    )


def test_arguments_by_node():
    conv = make([NEAR, HAS], **EMBEDDING)
    x, calls = {t: X[t] for t in ('doc', 'word')}, listen(conv)
    batch = {t: BATCH[t] for t in x}
    conv(x, batch_dict=batch, embedding_dict={t: E_ROWS[t] for t in x})
    near = {'batch': BATCH['doc'], 'embedding': E_ROWS['doc']}
    has = {
        'batch': (BATCH['doc'], BATCH['word']),
        'embedding': (E_ROWS['doc'], E_ROWS['word']),
    }
    check_calls(
        calls,
        {
            NEAR: {'x': X['doc'], 'edge_index': None} | near,
            HAS: {'x': X['word'], 'edge_index': None, 'context': X['doc']} | has,
        },
    )


def test_arguments_of_new_rows():
    conv = make(**EMBEDDING)
    calls, new = listen(conv), {'doc': X['doc'][:3]}
    some = {t: (E_ROWS[t], E_ROWS[t][:3] if t == 'doc' else None) for t in IN}
    conv(new, context_dict=X, embedding_dict=some)
    # What is of one type is a pair as well, and nothing leads to words.
    check_calls(
        calls,
        {
            relation: {
                'x': new['doc'],
                'edge_index': None,
                'context': X[relation[0]],
                'embedding': (E_ROWS[relation[0]], E_ROWS['doc'][:3]),
            }
            for relation in (IN_DOC, NEAR, OF)
        },
    )


def test_relations_without_sources_are_not_called():
    conv = make()
    calls = listen(conv)
    conv(rows(author=0))
    assert list(calls) == [IN_DOC, NEAR, HAS]
    calls.clear()
    conv(rows(doc=0))  # None to send to words, and none to send to.
    assert list(calls) == [IN_DOC, NEAR, OF]


def test_only_relations_that_compare_it_are_given_an_embedding():
    conv = make({NEAR: EMBEDDING, IN_DOC: {}})
    calls, x = listen(conv), {t: X[t] for t in ('doc', 'word')}
    conv(x, embedding_dict={'doc': E_ROWS['doc']})
    assert 'embedding' in calls[NEAR]
    assert 'embedding' not in calls[IN_DOC]


def test_lazy_sizes():
    x = single(rows())
    conv = HeteroLatentGraphConv(-1, OUT, RELATIONS)
    assert str(conv).startswith(
        "HeteroLatentGraphConv({'word': -1, 'doc': -1, 'author'"
    )
    assert conv(x)['word'].shape == (9, OUT)
    assert conv.convs[OF].lin.weight.shape == (OUT, 3)
    assert conv.convs[OF].lin_target.weight.shape == (OUT, 6)
    assert conv.roots['doc'].weight.shape == (OUT, 6)
    text = r"'x_dict\['author'\]' must have 3 channels \(got 4\)"
    with pytest.raises(ValueError, match=text):
        conv(x | {'author': torch.randn(7, 4)})
    mixed = HeteroLatentGraphConv(IN | {'word': -1}, OUT, RELATIONS)
    assert mixed(x)['doc'].shape == (12, OUT)


def test_the_width_of_a_type_that_is_a_target_alone():
    lazy = HeteroLatentGraphConv(-1, OUT, [IN_DOC], root_weight=False)
    x = {t: value for t, value in single(X).items() if t != 'author'}
    lazy(x)
    text = r"'x_dict\['doc'\]' must have 6 channels \(got 5\)"
    with pytest.raises(ValueError, match=text):
        lazy(x | {'doc': x['doc'][:, :5]})


def test_the_width_of_a_type_whose_other_relation_was_called():
    to_word = ('author', 'at', 'word')
    lazy = HeteroLatentGraphConv(-1, OUT, [OF, to_word])
    x = single(X)
    context = {'author': single(X)['author']}
    lazy({'doc': x['doc']}, context_dict=context)
    with pytest.raises(ValueError, match=r"'context_dict\['author'\]' must have 3 cha"):
        lazy({'word': x['word']}, context_dict={'author': torch.randn(7, 4)})
    assert lazy({'word': x['word']}, context_dict=context)['word'].shape == (9, OUT)
    lazy.check_context(single(X))


def test_widths_of_targets_that_are_not_projected():
    # Compared by their embedding, and without a root weight, they are not read.
    lazy = HeteroLatentGraphConv(-1, OUT, [IN_DOC], root_weight=False, **EMBEDDING)
    x = {t: value for t, value in single(X).items() if t != 'author'}
    given = single(E_ROWS)
    del given['author']
    for width in (6, 4):
        out = lazy(x | {'doc': x['doc'][:, :width]}, embedding_dict=given)
        assert out['doc'].shape == (12, OUT)


@pytest.mark.parametrize('empty', ['author', 'doc'])
@pytest.mark.parametrize('method', ['forward', 'graphs', 'plan'])
def test_lazy_sizes_of_types_without_nodes(method, empty):
    x = single(rows(**{empty: 0}))
    conv = HeteroLatentGraphConv(-1, OUT, RELATIONS)
    getattr(conv, method)(x)
    for source, _, target in RELATIONS:
        own = conv.convs[source, _, target]
        assert own.lin.weight.shape == (OUT, IN[source])
        if source != target:
            assert own.lin_target.weight.shape == (OUT, IN[target])
        assert all(bool(p.isfinite().all()) for p in own.parameters())
    full = single(rows())
    assert conv(full)['doc'].shape == (12, OUT)
    other = HeteroLatentGraphConv(IN, OUT, RELATIONS)
    other.load_state_dict(conv.state_dict())
    # Rows of the same type that are a context may be none as well.
    alone = HeteroLatentGraphConv(-1, OUT, [NEAR])
    alone({'doc': full['doc']}, context_dict={'doc': full['doc'][:0]})
    assert alone.convs[NEAR].lin.weight.shape == (OUT, 6)
