import copy
from functools import partial

import pytest
import torch
from oracles import seeded
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from torch_geometric_gsl import (
    GSLNet,
    LatentGraphConv,
    TransitionGraphConv,
)
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES
from torch_geometric_gsl.transforms import FreezeLatentGraph

N, IN, HIDDEN, OUT = 24, 6, 8, 2
FULL = {}
TRANSITION = {'num_transition_nodes': 7, 'num_nodes': N}
FREE = {'num_transition_nodes': 7, 'transition': 'free'}
OPTIONS = pytest.mark.parametrize(
    'options', [FULL, TRANSITION, FREE], ids=['full', 'transition', 'free']
)


def problem():
    """Two classes around two centres."""
    y = torch.arange(N) % 2
    x = 0.5 * torch.randn(N, IN, generator=seeded(3))
    x[:, 0] += 2.0 * y - 1.0
    return x, y


def make(options, **kwargs):
    torch.manual_seed(5)
    kwargs = {
        'num_layers': 2,
        'out_channels': OUT,
        'z_channels': None,
        **options,
        **kwargs,
    }
    return GSLNet(IN, HIDDEN, **kwargs)


@OPTIONS
@pytest.mark.parametrize('name', SIMILARITIES)
def test_training(name, options):
    model = make(options, similarity=name, dropout=0.0)
    x, y = problem()
    before = float(F.cross_entropy(model.eval()(x), y).detach())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    model.train()
    for _ in range(40):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    out = model.eval()(x)
    assert float(F.cross_entropy(out, y).detach()) < 0.5 * before
    assert float((out.argmax(1) == y).float().mean()) > 0.85


@OPTIONS
@pytest.mark.parametrize('act', ['elu', 'relu', torch.nn.Tanh(), None])
def test_forward_is_written_out(options, act):
    x = problem()[0]
    kwargs = {} if act == 'relu' else {'act': act}
    model = make(options, num_layers=3, **kwargs).eval()
    layer = TransitionGraphConv if options else LatentGraphConv
    assert {type(conv) for conv in model.convs} == {layer}
    widths = [(IN, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, OUT)]
    assert [(conv.in_channels, conv.out_channels) for conv in model.convs] == widths
    functions = {'elu': F.elu, 'relu': F.relu, None: lambda h: h}
    function = functions.get(act, act)
    h = function(model.convs[1](function(model.convs[0](x))))
    assert torch.equal(model(x), model.convs[2](h))


@OPTIONS
def test_dropout_follows_hidden_layers_only(options):
    model, x = make(options, num_layers=3, dropout=0.25, act='elu'), problem()[0]
    inputs, outputs = [], []
    for conv in model.convs:
        conv.register_forward_hook(lambda _, __, out: outputs.append(out))
        conv.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    out = model(x)
    assert torch.equal(inputs[0], x)
    assert torch.equal(out, outputs[-1])
    for hidden, received in zip(outputs, inputs[1:], strict=False):
        mask = received != 0
        assert 0.6 < float(mask.float().mean()) < 0.9
        torch.testing.assert_close(received[mask], F.elu(hidden)[mask] / 0.75)
    model.eval()
    assert torch.equal(model(x), model(x))


def test_one_similarity_of_the_input_serves_all_layers():
    x = problem()[0]
    model = make(FULL, z_channels=-1, dropout=0.0, train_scale=True)
    conv, last = model.convs
    assert last.sampler is conv.sampler
    assert conv.sampler.similarity.in_channels == IN
    names = [name for name, _ in model.named_parameters() if 'sampler' in name]
    assert all(name.startswith('convs.0') for name in names)
    # Both layers look at the input, and draw a graph of their own.
    h = model.act(conv(x, z=x, generator=(noise := seeded(1))))
    expected = last(h, z=x, generator=noise)
    out = model(x, generator=seeded(1))
    torch.testing.assert_close(out, expected)
    assert torch.equal(model(x, z=x, generator=seeded(1)), out)
    graph, last_graph = model.graphs(x, generator=seeded(1))
    assert not torch.equal(graph.edge_weight, last_graph.edge_weight)
    graph, last_graph = model.eval().graphs(x)
    assert torch.equal(graph.edge_index, last_graph.edge_index)
    # Rows that are given are compared in place of the input.
    assert not torch.allclose(model(x, z=x.flip(0)), model(x))


@pytest.mark.parametrize('similarity', ['linear', 'neural_gaussian'])
@pytest.mark.parametrize('scale', [39.0, 40.0, 100.0])
def test_no_scale_is_too_large_to_plan(similarity, scale):
    # A race would take e^40 proposals and more: none is that long.
    x, edges = torch.randn(200, 16), torch.randint(200, (2, 4000))
    model = GSLNet(16, 8, 2, 3, similarity=similarity, scale=scale, tau=1.0)
    for kwargs in ({}, {'edge_index': edges}, {'batch': torch.arange(200) // 100}):
        assert model.convs[0].sampler.plan(x, **kwargs).method == 'dense'
        out = model(x, **kwargs)
        (gradient,) = torch.autograd.grad(out.square().sum(), model.convs[0].lin.weight)
        assert bool(out.isfinite().all())
        assert bool(gradient.isfinite().all())


def test_diverged_parameters_are_told_from_bad_features():
    model = GSLNet(3, 4, 2, 2, k=2)
    torch.nn.init.constant_(model.convs[0].lin.weight, torch.nan)
    with pytest.raises(ValueError, match="'x @ weight' contains NaN"):
        model(torch.randn(6, 3))


@pytest.mark.parametrize('use_reentrant', [False, True])
def test_what_is_computed_again_drops_the_same_values(use_reentrant):
    torch.manual_seed(0)
    model = GSLNet(IN, 8, 3, 2, k=2, dropout=0.5)
    x = torch.randn(20, IN, generator=seeded(1), requires_grad=True)
    grads = []
    for run in (model, partial(checkpoint, model, use_reentrant=use_reentrant)):
        torch.manual_seed(1)
        model.zero_grad()
        run(x).square().sum().backward()
        grads.append([p.grad for p in model.parameters()])
    for grad, expected in zip(*grads, strict=True):
        torch.testing.assert_close(grad, expected)


# Transition nodes that are free or anchors: mini-batches and new rows.

S = 7
FORMS = pytest.mark.parametrize('form', ['free', 'anchors'])


def make_transition(form, **options):
    torch.manual_seed(0)
    sizes = IN, HIDDEN, options.pop('num_layers', 3), OUT
    net = GSLNet(*sizes, num_transition_nodes=S, transition=form, k=3, **options)
    return net if form == 'free' else net.choose_anchors(problem()[0])


@FORMS
@pytest.mark.parametrize('training', [True, False])
def test_layer_by_layer(form, training):
    net, x = make_transition(form, dropout=0.0).train(training), torch.randn(9, IN)
    noise, h, rows = seeded(4), x, net.anchors
    graphs = []
    for i, conv in enumerate(net.convs):
        is_last = i == len(net.convs) - 1
        pair = h if rows is None else (rows, h)
        if rows is not None and not is_last:
            # Anchors see each other.
            rows = F.relu(conv((rows, rows), generator=noise))
        copied = copy.deepcopy(conv)
        twin = noise.clone_state()
        graphs.append(copied.graph(pair, generator=twin))
        h = conv(pair, generator=noise)
        h = h if is_last else F.relu(h)
    torch.testing.assert_close(net(x, generator=seeded(4)), h)
    drawn = net.graphs(x, generator=seeded(4))
    assert len(drawn) == 3
    for graph, expected in zip(drawn, graphs, strict=True):
        assert torch.equal(graph.edge_index, expected.edge_index)
        assert graph.edge_index[0].max() < S
        torch.testing.assert_close(graph.edge_weight, expected.edge_weight)


@FORMS
def test_graphs_of_a_batch_are_read_out(form):
    net, x = make_transition(form, readout='mean').eval(), torch.randn(20, IN)
    batch = torch.arange(20) // 10
    alone = [net(x[:10]), net(x[10:])]
    torch.testing.assert_close(net(x, batch=batch), torch.cat(alone))
    with pytest.raises(ValueError, match="'batch' must be sorted"):
        net(x, batch=batch.flip(0))
    with pytest.raises(TypeError, match=r"'x' must be a torch\.Tensor"):
        net(None, batch=batch)
    loss = net.train().loss(x, torch.tensor([0, 1]), batch=batch)
    assert loss.isfinite()


def test_what_has_no_meaning():
    x, edges = problem()[0], torch.zeros(2, 1, dtype=torch.long)
    for form in ('free', 'anchors'):
        net = make_transition(form)
        for call in (net, net.graphs):
            for name, value in (
                ('edge_index', edges),
                ('batch', torch.zeros(N).long()),
            ):
                match = f"'{name}' is not supported with transition nodes"
                with pytest.raises(ValueError, match=match):
                    call(x, **{name: value})
        with pytest.raises(ValueError, match=f"supported with transition='{form}'"):
            net.index(x)
        with pytest.raises(ValueError, match="'model' must learn a graph between"):
            FreezeLatentGraph(net)
    net = make_transition('free')
    for call in (net, net.graphs, net.predict):
        with pytest.raises(TypeError, match="with transition='free', which learns its"):
            call((x, x))
    size = {'num_transition_nodes': S, 'transition': 'anchors'}
    net = GSLNet(IN, HIDDEN, 2, OUT, **size)
    for call in (net, net.graphs, net.predict):
        with pytest.raises(ValueError, match="'anchors' must be chosen first"):
            call(x)


class LinearOfCompared(torch.nn.Module):
    """A layer of a user, which gets the rows that the others compare."""

    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(IN, OUT)

    def forward(self, x, *, z, **kwargs):
        return self.lin(z[1] if isinstance(z, tuple) else z)


@pytest.mark.parametrize('form', ['tensor', 'pair', 'index'])
def test_a_layer_of_a_user_gets_plain_rows(form):
    net, (x, _) = GSLNet(IN, HIDDEN, 2, OUT, z_channels=IN), problem()
    net.convs[1] = LinearOfCompared()
    net.eval()
    if form == 'index':
        net.index(x)
    out = net((x, x[:3]) if form == 'pair' else x)
    expected = net.convs[1].lin(x[:3] if form == 'pair' else x)
    torch.testing.assert_close(out, expected)
