"""The example of two hidden relations: what it counts, and that it runs."""

import argparse
import importlib
import math
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / 'examples'


@pytest.fixture
def example(monkeypatch):
    pytest.importorskip('matplotlib')
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module('two_relations')


def draw(example):
    args = argparse.Namespace(delta=[40.0, 110.0], waves=6)
    return example.hidden.draw_batch(args, 2, 5)


def test_means_over_true_edges(example):
    data = draw(example)
    edges = zip(*data.true_edge_index.tolist(), data.true_edge_type, strict=True)
    heard = [[[], []] for _ in range(data.num_nodes)]
    for source, target, kind in edges:
        heard[target][int(kind)].append(float(data.x[source]))
    expected = [[*(sum(own) / max(len(own), 1) for own in both), 1.0] for both in heard]
    torch.testing.assert_close(example.edge_means(data), torch.tensor(expected))


def two_bells(example, *degrees):
    model = example.two_bells()
    for sampler, angle in zip(model.samplers(), degrees, strict=True):
        sampler.similarity.begin_at(math.cos(math.radians(angle)))
    return model


def test_responses_peak_at_the_centres(example):
    model = two_bells(example, 30, 140)
    angle = torch.arange(181.0)
    curves = [example.response(sampler, angle) for sampler in model.samplers()]
    assert [int(curve.argmax()) for curve in curves] == [30, 140]
    torch.testing.assert_close(sum(curves).sum(), torch.tensor(2.0))
    assert model.conv.relations[0].lin.weight.tolist() == [[1.0]]


def test_precision(example, capsys):
    model = two_bells(example, 40, 110)
    for sampler in model.samplers():  # Widths of 8 sigmoid(-8), 0.003.
        torch.nn.init.constant_(sampler.similarity.bias_c, -8.0)
    example.print_precision('bells', model.eval(), draw(example)[0])
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        'bells, bell 1: 100% and 0% are true edges',
        'bells, bell 2: 0% and 100% are true edges',
    ]


def test_a_quick_run(example, capsys, tmp_path):
    example.main(['--quick', '--picture', str(tmp_path / 'new' / 'two.png')])
    printed = capsys.readouterr().out
    for name in (*example.ROWS, 'true graph'):
        assert f'\n{name:<26}' in printed
    assert (tmp_path / 'new' / 'two.png').stat().st_size > 10_000
