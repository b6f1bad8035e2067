"""The layers of a network: which are made, what each gets, and what they draw."""

from itertools import pairwise

import pytest
import torch
from oracles import seeded
from torch.nn import functional as F

from torch_geometric_gsl import GSLNet, LatentGraphConv, TransitionGraphConv
from torch_geometric_gsl.distributed import RowShard
from torch_geometric_gsl.nn.models.layers import run

N, IN, HIDDEN, OUT = 24, 6, 8, 2
FULL = {}
TRANSITION = {'num_transition_nodes': 7, 'num_nodes': N}
FREE = {'num_transition_nodes': 7, 'transition': 'free'}
KINDS = pytest.mark.parametrize(
    'kind', [FULL, TRANSITION, FREE], ids=['full', 'transition', 'free']
)


def rows():
    return torch.randn(N, IN, generator=seeded(3))


def make(kind, **kwargs):
    torch.manual_seed(5)
    kwargs = {'num_layers': 2, 'out_channels': OUT, **kind, **kwargs}
    return GSLNet(IN, HIDDEN, **kwargs)


@KINDS
@pytest.mark.parametrize('in_channels', [IN, -1])
@pytest.mark.parametrize('num_layers', [1, 2, 3])
def test_layers(kind, in_channels, num_layers):
    options = {'k': 4, 'tau': 0.5, 'root_weight': False, **kind}
    model = GSLNet(in_channels, HIDDEN, num_layers, OUT, **options)
    widths = [in_channels, *[HIDDEN] * (num_layers - 1), OUT]
    found = [(conv.in_channels, conv.out_channels) for conv in model.convs]
    assert found == list(pairwise(widths))
    for conv in model.convs:
        assert type(conv) is (TransitionGraphConv if kind else LatentGraphConv)
        assert (conv.sampler.k, conv.sampler.tau) == (4, 0.5)
        assert conv.lin_root is None
    assert model(rows()).shape == (N, OUT)
    assert model.convs[0].lin.weight.size(1) == IN


def test_one_similarity_of_the_input_serves_all_layers():
    x = rows()
    model = make(FULL, compare='input', dropout=0.0, train_scale=True)
    first, second = model.convs
    assert second.sampler is first.sampler
    assert first.sampler.similarity.in_channels == IN
    names = [name for name, _ in model.named_parameters() if 'sampler' in name]
    assert all(name.startswith('convs.0') for name in names)
    # Both layers look at the input, and draw a graph of their own.
    h = model.act(first(x, embedding=x, generator=(noise := seeded(1))))
    expected = second(h, embedding=x, generator=noise)
    torch.testing.assert_close(model(x, generator=seeded(1)), expected)
    given = make(FULL, compare='embedding', embedding_channels=IN, dropout=0.0)
    given.load_state_dict(make(FULL, compare='input').state_dict())
    model = make(FULL, compare='input', dropout=0.0)
    found = given(x, embedding=x, generator=seeded(1))
    assert torch.equal(found, model(x, generator=seeded(1)))
    one, other = model.graphs(x, generator=seeded(1))
    assert not torch.equal(one.edge_weight, other.edge_weight)
    evaluated = model.eval().graphs(x)
    assert torch.equal(evaluated[0].edge_index, evaluated[1].edge_index)


@KINDS
def test_dropout_follows_hidden_layers_only(kind):
    model, x = make(kind, num_layers=3, dropout=0.25), rows()
    inputs, outputs = [], []
    for conv in model.convs:
        conv.register_forward_hook(lambda _, __, out: outputs.append(out))
        conv.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    out = model(x)
    assert torch.equal(inputs[0], x)
    assert torch.equal(out, outputs[-1])
    for hidden, received in zip(outputs, inputs[1:], strict=False):
        kept = received != 0
        assert 0.6 < float(kept.float().mean()) < 0.9
        expected = F.elu(hidden)[kept] / 0.75
        torch.testing.assert_close(received[kept], expected)
    model.eval()
    assert torch.equal(model(x), model(x))


@KINDS
@pytest.mark.parametrize('is_global', [False, True])
def test_the_graph_that_is_seen_is_the_one_that_is_used(kind, is_global):
    x, graphs = rows(), []
    conv = make(kind, root_weight=False, bias=False, k=3).convs[0]
    generator = None if is_global else seeded(1)
    torch.manual_seed(2)
    out = run(conv, x, {}, generator, graphs)
    (graph,) = graphs
    source = conv.lin(x)
    if kind == TRANSITION:
        source = conv.w_e @ source
    elif kind == FREE:
        source = conv.messages
    summed = torch.zeros(N, HIDDEN).index_add(
        0, graph.edge_index[1], graph.edge_weight[:, None] * source[graph.edge_index[0]]
    )
    torch.testing.assert_close(out, summed)
    # Looking draws nothing that a call without a look would not draw.
    torch.manual_seed(2)
    twin = None if is_global else seeded(1)
    torch.testing.assert_close(run(conv, x, {}, twin), out)
    if not is_global:
        assert torch.equal(generator.get_state(), twin.get_state())


@pytest.mark.parametrize(
    ('options', 'given', 'text'),
    [
        ({'num_relations': 2}, {}, "'num_relations' has no meaning with a 'shard'"),
        ({}, {'batch': torch.zeros(N).long()}, "'batch' has no meaning with a 'shard'"),
    ],
)
def test_what_has_no_meaning_with_a_shard(options, given, text):
    with pytest.raises(ValueError, match=text):
        make(FULL, **options)(rows(), shard=RowShard(N), **given)


@pytest.mark.parametrize('compare', ['projected', 'input'])
def test_a_shard_of_one_process_changes_nothing(compare):
    model, x = make(FULL, compare=compare, dropout=0.0), rows()
    expected = model(x, generator=seeded(1))
    assert torch.equal(model(x, shard=RowShard(N), generator=seeded(1)), expected)
