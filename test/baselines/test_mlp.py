import math

import torch

from torch_geometric_gsl.baselines.mlp import MLPClassifier


def make(**kwargs):
    torch.manual_seed(1)
    sizes = {'in_channels': 5, 'hidden_channels': 4, 'num_layers': 3, 'out_channels': 2}
    return MLPClassifier(**{**sizes, **kwargs})


def test_against_a_plain_loop():
    model, x = make().double().eval(), torch.randn(3, 5, dtype=torch.float64)
    rows = x.tolist()
    for number, lin in enumerate(model.lins):
        weight, bias = lin.weight.tolist(), lin.bias.tolist()
        rows = [
            [
                math.fsum(a * b for a, b in zip(row, column, strict=True)) + c
                for column, c in zip(weight, bias, strict=True)
            ]
            for row in rows
        ]
        if number < 2:
            rows = [[a if a > 0 else math.expm1(a) for a in row] for row in rows]
    torch.testing.assert_close(model(x), torch.tensor(rows, dtype=torch.float64))


def test_dropout_follows_hidden_layers_only():
    model, x = make(dropout=0.25, act=None, num_layers=2), torch.randn(900, 5)
    received = []
    model.lins[1].register_forward_pre_hook(lambda _, args: received.append(args[0]))
    out = model(x)
    kept = received[0] != 0
    assert 0.7 < float(kept.float().mean()) < 0.8
    torch.testing.assert_close(received[0][kept], model.lins[0](x)[kept] / 0.75)
    torch.testing.assert_close(out, model.lins[1](received[0]))
    assert torch.equal(model.eval()(x), model(x))
