"""Networks whose transition nodes are free or anchors: mini-batches and new rows."""

import copy

import pytest
import torch
from oracles import seeded
from torch.nn import functional as F

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.transforms import FreezeLatentGraph

N, S, IN, HIDDEN, OUT = 40, 7, 6, 8, 3
FORMS = pytest.mark.parametrize('form', ['free', 'anchors'])
TRAINING = pytest.mark.parametrize('training', [True, False])


def draw_rows(number=N, seed=2):
    return torch.randn(number, IN, generator=seeded(seed))


def make(form, num_layers=3, **options):
    torch.manual_seed(0)
    options = {'out_channels': OUT, 'k': 3, **options}
    net = GSLNet(
        IN, HIDDEN, num_layers, num_transition_nodes=S, transition=form, **options
    )
    return (
        net.choose_anchors(draw_rows(), generator=seeded(1)) if form != 'free' else net
    )


@FORMS
@TRAINING
def test_layer_by_layer(form, training):
    net, x = make(form, dropout=0.0).train(training), draw_rows(9, seed=3)
    noise, h, rows = seeded(4), x, net.anchors
    graphs = []
    for number, conv in enumerate(net.convs):
        is_last = number == len(net.convs) - 1
        pair = h if rows is None else (rows, h)
        if rows is not None and not is_last:
            # Anchors see each other.
            rows = F.relu(conv((rows, rows), generator=noise))
        own = copy.deepcopy(conv)
        twin = noise.clone_state()
        graphs.append(own.graph(pair, generator=twin))
        h = conv(pair, generator=noise)
        h = h if is_last else F.relu(h)
    torch.testing.assert_close(net(x, generator=seeded(4)), h)
    found = net.graphs(x, generator=seeded(4))
    assert len(found) == 3
    for graph, expected in zip(found, graphs, strict=True):
        assert torch.equal(graph.edge_index, expected.edge_index)
        assert graph.edge_index[0].max() < S
        torch.testing.assert_close(graph.edge_weight, expected.edge_weight)


@FORMS
def test_graphs_of_a_batch_are_read_out(form):
    net, x = make(form, readout='mean').eval(), draw_rows(20)
    batch = torch.arange(20) // 10
    parts = [net(x[:10]), net(x[10:])]
    torch.testing.assert_close(net(x, batch=batch), torch.cat(parts))
    with pytest.raises(ValueError, match="'batch' must be sorted"):
        net(x, batch=batch.flip(0))
    with pytest.raises(TypeError, match=r"'x' must be a torch\.Tensor"):
        net(None, batch=batch)
    loss = net.train().loss(x, torch.tensor([0, 1]), batch=batch)
    assert loss.isfinite()


def test_what_has_no_meaning():
    x, edges = draw_rows(), torch.zeros(2, 1, dtype=torch.long)
    for form in ('free', 'anchors'):
        net = make(form)
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
    net = make('free')
    for call in (net, net.graphs, net.predict):
        with pytest.raises(TypeError, match="with transition='free', which learns its"):
            call((x, x))
    size = {'num_transition_nodes': S, 'transition': 'anchors'}
    net = GSLNet(IN, HIDDEN, 2, OUT, **size)
    for call in (net, net.graphs, net.predict):
        with pytest.raises(ValueError, match="'anchors' must be chosen first"):
            call(x)
