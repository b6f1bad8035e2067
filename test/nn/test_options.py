"""What layers and networks refuse when they are made, and how they show themselves."""

import math

import pytest
import torch

import torch_geometric_gsl as gsl
from torch_geometric_gsl import (
    GSLNet,
    HeteroLatentGraphConv,
    LatentGraphConv,
    LinearSimilarity,
    SensorGraphConv,
    TransitionGraphConv,
)
from torch_geometric_gsl.nn import TableNet
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler

IN = {'doc': 6, 'word': 5, 'author': 3}
IN_DOC, NEAR = ('word', 'in', 'doc'), ('doc', 'near', 'doc')
RELATIONS = [IN_DOC, NEAR, ('author', 'of', 'doc'), ('doc', 'has', 'word')]
PLAIN, NET = {'in_channels': 6, 'out_channels': 4}, {'hidden_channels': 8}
TYPED, NET = {'in_channels': IN, 'relations': RELATIONS}, NET | {'num_layers': 2}
#: What each is made with, beside the options of a case.
SIZES = {
    LatentGraphConv: PLAIN,
    SensorGraphConv: PLAIN,
    TransitionGraphConv: PLAIN,
    HeteroLatentGraphConv: PLAIN | TYPED,
    GSLNet: PLAIN | NET,
    TableNet: PLAIN | {'hidden_channels': 8, 'num_frequencies': 0},
}
LEARNED = [cls for cls in SIZES if cls is not TableNet]
EVERY = [
    ({'k': 0}, ValueError, r"'k' must be at least 1 \(got 0\)"),
    ({'root_weight': 1}, TypeError, r"'root_weight' must be a bool \(got 1\)"),
    ({'bias': 'no'}, TypeError, r"'bias' must be a bool \(got 'no'\)"),
    ({'heads': 2}, TypeError, "has no option 'heads'"),
    ({'label_channels': 2}, TypeError, "has no option 'label_channels'"),
    ({'similarity': 'l2'}, ValueError, r"'similarity' must be one of .* 'l2'"),
    ({'in_channels': -2}, ValueError, r"'in_channels\S*' must be at least 1 \(got -2"),
    ({'out_channels': 0}, ValueError, r"'out_channels' must be at least 1 \(got 0\)"),
]
WIDTH = {'in_channels': 6}
FREE = {'num_transition_nodes': 3, 'transition': 'free'}
ANCHORS = {'num_transition_nodes': 3, 'transition': 'anchors'}
BAD_OPTIONS = {
    LatentGraphConv: [
        ({'in_channels': -1, 'z_channels': -1}, ValueError, r'known width .*got -1\)'),
        ({'in_channels': (-1, 6), 'z_channels': -1}, ValueError, r'\(got \(-1, 6\)\)'),
        ({'in_channels': (5, 6), 'z_channels': -1}, ValueError, r'\(got \(5, 6\)\)'),
        ({'z_channels': -2}, ValueError, r"'z_channels' must be at least 1 \(got -2"),
        ({'in_channels': (5, -2)}, ValueError, "'in_channels' must be at least 1"),
        (
            {'similarity': LinearSimilarity(4), 'z_channels': -1},
            ValueError,
            '_channels=6',
        ),
    ],
    SensorGraphConv: [
        ({'num_sensors': 0}, ValueError, r"'num_sensors' must be at least 1 \(got 0"),
        ({'num_sensors': 5, 'z_channels': 3}, ValueError, "'z_channels' is not supp"),
        ({'z_channels': -1}, ValueError, r"'z_channels' must be at least 1 \(got -1"),
        ({'in_channels': (1, 2)}, TypeError, r"'in_channels' must be .* \(got tuple"),
        ({'directed': 1}, TypeError, r"'directed' must be a bool \(got 1\)"),
        ({'embedding_channels': 0}, ValueError, "'embedding_channels' must be at lea"),
        ({'similarity': LinearSimilarity(3)}, ValueError, 'must have in_channels='),
    ],
    TransitionGraphConv: [
        ({'transition': 'none'}, ValueError, r"'transition' must be one of .* 'none'"),
        ({}, ValueError, r"'num_nodes' must be given .* \(got 500 and None\), unless"),
        ({'num_nodes': 0}, ValueError, r"'num_nodes' must be at least 1 \(got 0\)"),
        (FREE | {'num_nodes': 9}, ValueError, "'num_nodes' is not supported with tr"),
        (ANCHORS | {'num_transition_nodes': 0}, ValueError, 'n_nodes. must be at le'),
        (FREE | {'num_transition_nodes': 0.5}, TypeError, 'nodes. must be an integer'),
        ({'num_nodes': 9, 'z_channels': 3}, TypeError, "no option 'z_channels'"),
        ({'in_channels': (4, 5), 'num_nodes': 9}, TypeError, r'integer \(got tuple'),
    ],
    HeteroLatentGraphConv: [
        ({'relations': 'doc'}, TypeError, r"'relations' must be a list .* \(got str\)"),
        ({'relations': [('a', 'b')]}, ValueError, r"edge types .* \(got \('a', 'b'\)"),
        ({'relations': [NEAR] * 2}, ValueError, "'relations' must be distinct .* twic"),
        (
            WIDTH | {'relations': {NEAR: 1}},
            TypeError,
            r"'relations\[.* options \(got int",
        ),
        (WIDTH | {'relations': {NEAR: {'a': 2}}}, TypeError, "has no option 'a'"),
        ({'relations': []}, ValueError, r"'relations' must hold at .*\(got no"),
        ({'in_channels': {'doc': 6}}, ValueError, "'in_channels' .* entry for 'word'"),
        ({'in_channels': IN | {'page': 2}}, ValueError, r"dict of \['word', .* 'page'"),
        ({'z_channels': -1}, ValueError, r"'in_channels' must be one known .* \(5, 6"),
        ({'aggr': 'add'}, ValueError, r"'aggr' must be one of \['sum', .*\(got 'add'"),
    ],
    GSLNet: [
        ({'hidden_channels': 0}, ValueError, "'hidden_channels' must be at least 1"),
        ({'num_layers': 0}, ValueError, r"'num_layers' must be at least 1 \(got 0\)"),
        ({'dropout': 1.0}, ValueError, r"'dropout' must lie in \[0, 1\) \(got 1.0\)"),
        ({'act': 'bell'}, ValueError, 'Could not resolve'),
        ({'act': 3}, TypeError, r"'act' must be a str, a callable or None \(got 3"),
        ({'act': torch.nn.ReLU}, TypeError, "'act' must be a str, a callable or None"),
        ({'num_nodes': 3}, ValueError, r'must be given together \(got None and 3\)'),
        ({'num_transition_nodes': 3}, ValueError, r'given together \(got 3 and None\)'),
        ({'transition': 'none'}, ValueError, "'transition' must be one of"),
        ({'transition': 'free'}, ValueError, "nodes' is required with transition='f"),
        (ANCHORS | {'num_nodes': 9}, ValueError, "'num_nodes' is not supported with"),
        (FREE | {'z_channels': -1}, ValueError, "'z_channels' is not supported with "),
        ({'task': 'ranking'}, ValueError, r"'task' must be one of .*\(got 'ranking'\)"),
        ({'task': 'binary'}, ValueError, r"'out_channels' must be 1 .* \(got 4\)"),
    ],
    TableNet: [
        ({'in_channels': 0}, ValueError, r"'in_channels' must be at least 1 \(got 0\)"),
        ({'eval_k': 2.5}, TypeError, "'eval_k' must be an integer"),
        ({'draws': 0}, ValueError, "'draws' must be at least 1"),
        ({'key_channels': 0}, ValueError, "'key_channels' must be at least 1"),
        ({'dropout': 2.0}, ValueError, "'dropout' must lie in"),
        ({'num_frequencies': -1}, ValueError, "'num_frequencies' must be at least 0"),
    ],
}
BAD_OPTIONS[LatentGraphConv] += [row for row in EVERY if 'label_channels' not in row[0]]
for cls in LEARNED[1:]:
    extra = FREE if cls is TransitionGraphConv else {}
    BAD_OPTIONS[cls] += [(extra | options, *row) for options, *row in EVERY]


@pytest.mark.parametrize(
    ('cls', 'options', 'error', 'text'),
    [(cls, *row) for cls, rows in BAD_OPTIONS.items() for row in rows],
)
def test_options_that_are_wrong(cls, options, error, text):
    with pytest.raises(error, match=text):
        cls(**{**SIZES[cls], **options})


def test_where_a_cosine_tells_nothing_the_default_is_the_distance():
    distance = gsl.DistanceSimilarity
    for width in (1, 2):
        net = GSLNet(width, 8, 2, 3)
        assert isinstance(net.convs[0].sampler.similarity, distance)
    few = {'z_channels': -1}
    narrow = LatentGraphConv(1, 8, **few), LatentGraphConv(2, 8, **few)
    for conv in (*narrow, LatentGraphConv(8, 1)):
        assert isinstance(conv.sampler.similarity, distance)
    nets = GSLNet(2, 8, 2, 3, 'linear'), GSLNet(3, 8, 2, 3), GSLNet.paper(1, 8, 2, 3)
    # Rows of two columns that are not the features may be angles.
    similarity = LatentGraphConv(1, 8, z_channels=2).sampler.similarity
    assert isinstance(similarity, gsl.MixtureSimilarity)
    for net in nets:
        assert not isinstance(net.convs[0].sampler.similarity, distance)


def test_a_mixture_with_arguments_stays_one():
    few = {'similarity_kwargs': {'share': 0.7}}
    for conv in (LatentGraphConv(8, 1, **few), GSLNet(2, 8, 2, 3, **few).convs[0]):
        mixture = conv.sampler.similarity
        assert isinstance(mixture, gsl.MixtureSimilarity)
        share = mixture.response(torch.zeros(1, mixture.embedding_channels)).params[0]
        assert float(share.detach()) == pytest.approx(0.7)


def test_distinct_draws_of_the_printed_model_are_as_many_in_evaluation():
    assert LatentGraphConv.paper(8, 8, replace=False).sampler.num_nearest == 5
    assert LatentGraphConv.paper(8, 8).sampler.num_nearest is None


BELL = 'MixtureSimilarity(32, share=0.5)'
LINEAR = 'similarity=LinearSimilarity({}), k={}, tau={}, scale={}'.format
SHORT = 'similarity=MixtureSimilarity, k=5, tau=0.5, scale=20.0'
SHOWN = [
    (LatentGraphConv(16, 32), f'16, 32, similarity={BELL}, k=5, tau=0.5, scale=20.0'),
    (
        LatentGraphConv(-1, 8, 'linear', k=2, tau=1.0, eval_k=3, method='race'),
        f"-1, 8, {LINEAR(8, 2, 1.0, 20.0)}, method='race', eval_k=3",
    ),
    (
        LatentGraphConv(8, 8, 'linear', null_score=0.0),
        f'8, 8, {LINEAR(8, 5, 0.5, 20.0)}, null_score=0.0',
    ),
    (
        SensorGraphConv(-1, 8, None, 4, k=2, z_channels=2, directed=False),
        f"-1, 8, z_channels=2, {LINEAR(4, 2, 1.0, 5.0)}, method='dense'",
    ),
    (
        TransitionGraphConv(16, 8, similarity='linear', **FREE),
        f"16, 8, num_transition_nodes=3, transition='free', {LINEAR(8, 5, 0.5, 20.0)}",
    ),
    (
        HeteroLatentGraphConv({'word': 8, 'doc': 16}, 32, [IN_DOC], aggr=None),
        'num_relations=1',
    ),
    (
        GSLNet(16, 32, 2, 7, eval_k=9, root_weight=False),
        f'16, 32, num_layers=2, out_channels=7, root_weight=False, {SHORT}, eval_k=9',
    ),
    (
        GSLNet(16, 32, 2, 7, z_channels=None),
        f'16, 32, num_layers=2, out_channels=7, z_channels=None, {SHORT}',
    ),
    (
        GSLNet(16, 32, 2, 7, **FREE),
        '16, 32, num_layers=2, out_channels=7, num_transition_nodes=3, '
        f"transition='free', {SHORT}",
    ),
    (TableNet(4, 8, 1, graph='none', num_frequencies=0), "4, 8, 1, graph='none'"),
]


@pytest.mark.parametrize(('module', 'text'), SHOWN)
def test_repr(module, text):
    assert str(module) == f'{type(module).__name__}({text})'


def test_a_module_for_all_layers_has_the_width_of_the_input():
    with pytest.raises(
        ValueError, match="'similarity' must have in_channels=6, the wid"
    ):
        GSLNet(6, 8, 2, 4, LinearSimilarity(8))
    assert GSLNet(6, 8, 2, 8, LinearSimilarity(8)).z_channels is None
    assert GSLNet(6, 8, 2, 4, LinearSimilarity(6)).z_channels == 6


@pytest.mark.parametrize(
    ('name', 'value', 'error', 'text'),
    [
        ('method', 'densee', ValueError, "did you mean 'dense'"),
        ('eval_k', 'x', ValueError, "'eval_k' must be None, 'all' or an integer"),
        ('k', 0, ValueError, "'k' must be at least 1"),
        ('hard', 1, TypeError, "'hard' must be a bool"),
        ('scale', 0.0, ValueError, "'scale' must be positive"),
        ('scale', 3.0, AttributeError, "'scale' cannot be changed .got 3.0"),
        ('train_scale', False, AttributeError, "'train_scale' cannot be changed"),
        ('train_scale', 1, TypeError, "'train_scale' must be a bool"),
        ('similarity', 'linear', TypeError, "'similarity' must be a Similarity"),
        ('budget', 5, TypeError, "'budget' must be a Budget"),
        # What would leave a limit without effect.
        ('method', 'dense', ValueError, "'arrivals' is not supported with method='d"),
        ('method', 'pool', ValueError, "'arrivals' is not supported with method='p"),
        ('replace', False, ValueError, "'arrivals' is not supported with replace=F"),
    ],
)
def test_options_that_are_set_later_are_checked(name, value, error, text):
    options = {'train_scale': True, 'budget': gsl.Budget(arrivals=4)}
    sampler = GumbelKNNSampler.paper(LinearSimilarity(2), **options)
    before = getattr(sampler, name)
    with pytest.raises(error, match=text):
        setattr(sampler, name, value)
    assert getattr(sampler, name) == before
    sampler.eval_k = 'all'


def test_a_fixed_scale_can_be_set_and_does_not_become_learned():
    sampler = GumbelKNNSampler(LinearSimilarity(4), scale=3.0, train_scale=False)
    with pytest.raises(AttributeError, match="'train_scale' cannot be changed"):
        sampler.train_scale = True
    sampler.scale = 4.0
    assert sampler.factor == 4.0


def test_a_learned_scale_is_set_by_its_logarithm():
    sampler = GumbelKNNSampler.paper(LinearSimilarity(2), train_scale=True)
    torch.nn.init.constant_(sampler.log_scale, math.log(3.0))
    assert float(sampler.factor.detach()) == pytest.approx(3.0)
    assert 'scale=3.0' in repr(sampler)
