"""Evaluation as a program of `torch.export`, with any number of rows."""

import io

import pytest
import torch
from oracles import seeded
from torch.export import Dim, export

from torch_geometric_gsl import (
    Budget,
    GSLNet,
    GumbelKNNSampler,
    LatentGraphConv,
    LinearSimilarity,
    SensorGraphConv,
    TableNet,
)

N, IN, OUT = 20, 6, 4
SIMILARITIES = ['neural_gaussian', 'linear', 'gaussian', 'heat_kernel']
SIZES = [1, 2, 7, 150]

pytestmark = pytest.mark.skipif(
    not hasattr(torch.compiler, 'is_exporting'), reason='PyTorch 2.7 tells of exports'
)


def features(num_nodes=N, seed=3):
    return torch.randn(num_nodes, IN, generator=seeded(seed))


def make(**kwargs):
    torch.manual_seed(5)
    return GSLNet(IN, 8, 2, OUT, k=1, **kwargs).eval()


def program(model, strict=False, src=None):
    """Return the program of any number of rows, which may be those of targets."""
    x, shape = features(), {0: Dim('n')}
    x, shape = (x, shape) if src is None else ((src, x), (None, shape))
    return export(model, (x,), dynamic_shapes={'x': shape}, strict=strict)


def assert_agree(exported, model, sizes=SIZES, src=None):
    run = exported.module()
    for size in sizes:
        x = features(size, seed=size)
        x = x if src is None else (src, x)
        torch.testing.assert_close(run(x), model(x))


@pytest.mark.parametrize('similarity', SIMILARITIES)
def test_layers(similarity):
    conv, src = LatentGraphConv(IN, OUT, similarity).eval(), features(seed=4)
    assert_agree(program(conv), conv)
    assert_agree(program(conv, src=src), conv, src=src)


@pytest.mark.parametrize('kwargs', [{}, {'num_transition_nodes': 7, 'num_nodes': N}])
def test_sources_of_new_rows(kwargs):
    model, src = make(**kwargs), features(seed=4)
    assert_agree(program(model, src=src), model, src=src)


@pytest.mark.parametrize(
    'kwargs',
    [
        {'loop': False},
        {'null_score': 0.0},
        {'train_scale': True},
        {'budget': Budget(memory=1)},
    ],
    ids=str,
)
def test_options(kwargs):
    conv = LatentGraphConv(IN, OUT, 'linear', k=1, **kwargs).eval()
    assert_agree(program(conv), conv)


@pytest.mark.parametrize('kwargs', [{}, {'z_channels': -1}])
def test_networks(kwargs):
    model = make(**kwargs)
    assert_agree(program(model), model)


def test_strict_tracing():
    conv = LatentGraphConv(IN, OUT).eval()
    assert_agree(program(conv, strict=True), conv)


@pytest.mark.parametrize('kwargs', [{'num_sensors': N}, {}])
def test_one_graph_of_the_sensors_of_any_number_of_windows(kwargs):
    conv, x = SensorGraphConv(IN, OUT, **kwargs).eval(), features(5 * N).view(5, N, IN)
    run = export(conv, (x,), dynamic_shapes={'x': {0: Dim('windows')}}).module()
    for windows in (x[:2], x.repeat(3, 1, 1)):
        torch.testing.assert_close(run(windows), conv(windows))


@pytest.mark.parametrize('kwargs', [{}, {'z_channels': -1}])
def test_rows_that_are_indexed_travel_with_the_program(kwargs):
    model = make(**kwargs).index(features(seed=4))
    model(features())  # What is kept of the hidden rows is no part of it.
    file = io.BytesIO()
    torch.export.save(program(model), file)
    file.seek(0)
    assert_agree(torch.export.load(file), model)


def test_an_input_may_be_a_part_of_the_index():
    x = features()
    model = make().index(x)
    exported = export(model, (x[:9],), dynamic_shapes={'x': {0: Dim('n')}})
    assert_agree(exported, model)


def test_a_fixed_number_of_rows_of_transition_nodes():
    model = make(num_transition_nodes=7, num_nodes=N)
    run = export(model, (features(),)).module()
    torch.testing.assert_close(run(features(seed=8)), model(features(seed=8)))
    with pytest.raises(ValueError, match="'x' must have a fixed number of rows"):
        program(model)


def test_what_cannot_be_exported_says_why():
    x, edge_index = features(), torch.randint(N, (2, 40), generator=seeded(1))
    with pytest.raises(ValueError, match='supports evaluation only'):
        export(make().train(), (x,))
    with pytest.raises(ValueError, match="'edge_index' is not supported"):
        export(make(), (x,), {'edge_index': edge_index})
    with pytest.raises(ValueError, match="'batch' is not supported"):
        export(make(), (x,), {'batch': torch.zeros(N, dtype=torch.long)})
    for name, value in {'return_graph': True, 'edge_weight': torch.ones(40)}.items():
        with pytest.raises(ValueError, match=f"'{name}' is not supported by 'torch"):
            export(make(), (x,), {name: value})
    with pytest.raises(ValueError, match="'x' must be dense for 'torch"):
        export(make(), (x.to_sparse_csr(),))
    with pytest.raises(ValueError, match="a sampler is not supported by 'torch"):
        export(GumbelKNNSampler.paper(LinearSimilarity(IN)).eval(), (x,))


@pytest.mark.parametrize(
    'options',
    [{}, {'null_score': 2.0}, {'null_score': 900.0}, {'loop': False}],
    ids=str,
)
def test_a_program_sums_over_the_nearest(options):
    torch.manual_seed(0)
    conv, x = (
        LatentGraphConv(IN, OUT, scale=5.0, eval_k=3, **options).eval(),
        features(),
    )
    run = export(conv, (x,)).module()
    for rows in (x, features(seed=4)):
        torch.testing.assert_close(run(rows), conv(rows))


@pytest.mark.parametrize(
    'options',
    [
        {},
        {'eval_k': 5},
        {'eval_k': 5, 'similarity': 'linear'},
        {'eval_k': 5, 'null_score': 1.0},
        {'null_score': 1.0},
        {'graph': 'none'},
    ],
    ids=str,
)
def test_a_network_of_a_table_and_its_index(options):
    torch.manual_seed(0)
    net, x = TableNet(IN, 8, 1, num_frequencies=0, **options).eval(), features()
    y = x[:, 0]
    run = export(net, (x, y)).module()
    torch.testing.assert_close(run(x, y), net(x, y))
    net.index(features(60, seed=4), features(60, seed=4)[:, 0])
    assert_agree(program(net), net)


def test_a_table_in_training_or_with_its_graph_cannot_be_exported():
    net = TableNet(IN, 8, 1, num_frequencies=0)
    with pytest.raises(ValueError, match='supports evaluation only'):
        export(net, (features(),))
    with pytest.raises(ValueError, match="'return_graph' is not supported by 'torch"):
        export(net.eval(), (features(),), {'return_graph': True})
    with pytest.raises(ValueError, match="'batch, group or order' is not supported by"):
        export(net, (features(),), {'group': torch.arange(N)})


def test_a_model_is_loaded_after_an_export(tmp_path):
    model = GSLNet(IN, 8, OUT, 1).eval()
    program = export(model, (torch.randn(N, IN),), strict=False)
    model.save(tmp_path / 'model.pt')
    assert type(GSLNet.load(tmp_path / 'model.pt')) is GSLNet
    assert program is not None  # Which keeps the classes of the trace alive.


def test_a_program_tells_near_rows_apart():
    x = torch.tensor([1.0, 2, 3]) + 1e-3 * torch.randn(150, 3, generator=seeded())
    h = torch.eye(150)
    layer = LatentGraphConv(3, 3, 'linear', eval_k=5, bias=False).eval()
    with torch.no_grad():
        layer.lin.weight.copy_(torch.eye(3))
    graph = layer.sampler(x)

    class Sum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.sampler = layer.sampler

        def forward(self, x, h):
            return self.sampler.propagate(x, h)

    weight = export(Sum().eval(), (x, h)).module()(x, h)
    source, target = graph.edge_index
    torch.testing.assert_close(weight[target, source], graph.edge_weight)
    assert int((weight > 0).sum()) == source.numel()
