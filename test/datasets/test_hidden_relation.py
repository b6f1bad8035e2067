"""A relation that only positions tell, against its definition by loops."""

import math

import pytest
import torch
from torch_geometric.loader import DataLoader

from torch_geometric_gsl import LatentGraphConv
from torch_geometric_gsl.datasets import HiddenRelation


def test_the_relation_is_that_of_the_angles():
    graph = HiddenRelation(1, 30, delta=(50, 120), width=7.0, seed=3)[0]
    angle = torch.atan2(graph.pos[:, 1], graph.pos[:, 0]).rad2deg().tolist()
    expected = set()
    for target in range(30):
        for source in range(30):
            gap = abs(angle[target] - angle[source]) % 360
            gap = min(gap, 360 - gap)
            for kind, delta in enumerate((50, 120)):
                if source != target and abs(gap - delta) <= 7:
                    expected.add((source, target, kind))
    edges = zip(*graph.true_edge_index.tolist(), graph.true_edge_type, strict=True)
    assert {(j, i, int(kind)) for j, i, kind in edges} == expected
    assert len(expected) > 50
    assert graph.true_edge_index[1].diff().min() >= 0


def test_targets_are_the_means_at_both_sides():
    # Without noise the value of a node is the function there; on nodes a degree apart
    # the target is what the nodes at both sides see.
    graph = HiddenRelation(1, 2_000, delta=40, noise=0.0)[0]
    x, y, pos = graph.x, graph.y, graph.pos
    assert not torch.allclose(x, y, atol=0.1)
    turn = math.radians(40)
    rotation = torch.tensor(
        [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]]
    )
    sides = [x[(pos @ r @ pos.T).argmax(dim=1)] for r in (rotation, rotation.T)]
    torch.testing.assert_close(sum(sides) / 2, y, atol=0.05, rtol=0)


def test_noise_and_variance():
    def values(noise):
        graphs = HiddenRelation(300, 20, noise=noise, num_waves=2, seed=1)
        return torch.stack([graph.x for graph in graphs])

    # 300 functions of mean 0 and variance 1, 20 values each: within 5 standard errors.
    assert abs(float(values(0.0).square().mean()) - 1) < 5 * math.sqrt(2 / 300)
    noise = values(0.5) - values(0.0)
    assert abs(float(noise.std()) - 0.5) < 5 * 0.5 / math.sqrt(2 * 6_000)


def test_seeds_and_batches():
    first, again, other = (HiddenRelation(3, 10, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first[2].x, again[2].x)
    assert not torch.equal(first[2].x, other[2].x)
    assert not torch.equal(first[0].x, first[1].x)
    batch = next(iter(DataLoader(first, batch_size=3)))
    second = batch.true_edge_index[:, batch.batch[batch.true_edge_index[1]] == 1] - 10
    assert torch.equal(second, first[1].true_edge_index)
    assert str(HiddenRelation(2, 5, delta=(30, 60.5))) == (
        'HiddenRelation(2, delta=30, 60.5)'
    )
    assert HiddenRelation(1, 1)[0].true_edge_index.shape == (2, 0)


@pytest.mark.parametrize('seed', [3, 4])
def test_a_bell_that_moves_finds_the_relation(seed):
    torch.manual_seed(seed)
    bell = {'bias': True, 'centre': 'tanh'}
    scale = {'scale': 5.0, 'train_scale': True, 'tau': 1.0}
    compared = {'z_channels': 2, 'loop': False}
    options = compared | scale | {'similarity_kwargs': bell, 'root_weight': False}
    conv = LatentGraphConv(1, 1, 'neural_gaussian', **options)
    torch.nn.init.ones_(conv.lin.weight)
    optimizer = torch.optim.Adam(conv.parameters(), lr=0.03)
    for graph in HiddenRelation(100, 100, delta=100, seed=seed + 10):
        optimizer.zero_grad()
        loss = (conv(graph.x, z=graph.pos) - graph.y).square().mean()
        loss.backward()
        optimizer.step()
    conv.eval()
    with torch.no_grad():
        graphs = HiddenRelation(10, 100, delta=100, seed=1)
        outs = [conv(graph.x, z=graph.pos) for graph in graphs]
    y = torch.cat([graph.y for graph in graphs])
    assert (torch.cat(outs) - y).square().mean() < 0.15 * y.var()


@pytest.mark.parametrize(
    ('kwargs', 'error', 'text'),
    [
        ({'num_nodes': 0}, ValueError, "'num_nodes' must be"),
        ({'delta': 181}, ValueError, r"'delta' must lie between 0 and 180 \(got 181\)"),
        ({'delta': 'far'}, TypeError, "'delta' must be"),
        ({'delta': ()}, ValueError, r"'delta' must hold an angle \(got \(\)\)"),
        ({'width': -1.0}, ValueError, "'width' must be"),
        ({'noise': -0.1}, ValueError, r"'noise' must be at least 0 \(got -0.1\)"),
        ({'seed': 0.5}, TypeError, "'seed' must be"),
    ],
)
def test_bad_arguments(kwargs, error, text):
    with pytest.raises(error, match=text):
        HiddenRelation(**kwargs)
