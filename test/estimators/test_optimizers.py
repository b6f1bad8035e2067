"""Optimizers of networks for tables: what each updates, and Muon against its law."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracles import seeded

from torch_geometric_gsl.nn import TableNet
from torch_geometric_gsl.sklearn import _optimizers
from torch_geometric_gsl.sklearn._optimizers import (
    Muon,
    make_optimizers,
    orthogonalize,
    set_rates,
)

OPTIONS = {'learning_rate': 0.01, 'weight_decay': 0.0}
COEFFICIENTS = 3.4445, -4.775, 2.0315


def test_muon_gets_the_matrices_and_no_scalar_decays():
    net = TableNet(5, 40, 2, null_score=0.0)
    options = SimpleNamespace(**OPTIONS | {'weight_decay': 0.5})
    adam, muon = make_optimizers(net, options)
    names = {param: name for name, param in net.named_parameters()}
    groups = [
        (type(optimizer).__name__, group, {names[param] for param in group['params']})
        for optimizer in (adam, muon)
        for group in optimizer.param_groups
    ]
    every = [name for *_, param_names in groups for name in param_names]
    assert sorted(every) == sorted(names.values())
    (matrices,) = (
        param_names
        for optimizer_name, _, param_names in groups
        if optimizer_name == 'Muon'
    )
    blocks = {f'blocks.{i}.lin{j}.weight' for i in (0, 1) for j in (1, 2)}
    # The map of twenty inputs, the keys of twenty channels, and the head are smaller.
    assert matrices == blocks | {'lin_value.weight'}
    for optimizer_name, group, param_names in groups:
        is_scalar = param_names & {
            'neighbours.sampler.log_scale',
            'neighbours.sampler.null_score',
        }
        assert group['weight_decay'] == (0 if is_scalar else 0.5)
        factor = 30 if 'neighbours.sampler.null_score' in param_names else 1
        factor = 2 if optimizer_name == 'Muon' else factor
        assert group['peak'] == pytest.approx(factor * 0.01)
    # Frequencies are no matrix, whatever their number.
    wide = TableNet(32, 40, 2, num_frequencies=32)
    _, muon = make_optimizers(wide, options)
    param_ids = {id(param) for param in muon.param_groups[0]['params']}
    assert wide.encoder.periodic.periodic.weight.shape == (32, 32)
    assert id(wide.encoder.periodic.periodic.weight) not in param_ids
    assert id(wide.encoder.lin.weight) in param_ids
    # Networks without large matrices need no Muon.
    small = TableNet(5, 8, 2)
    assert len(make_optimizers(small, options)) == 1


def test_rates_of_a_cycle():
    optimizers = make_optimizers(TableNet(5, 40, 2), SimpleNamespace(**OPTIONS))
    shares = []
    for progress in np.linspace(0, 1, 201):
        set_rates(optimizers, progress)
        ratios = {
            round(group['lr'] / group['peak'], 12)
            for optimizer in optimizers
            for group in optimizer.param_groups
        }
        assert len(ratios) == 1
        shares += ratios
    best = int(np.argmax(shares))
    assert (shares[0], best, shares[best]) == (0.05, 30, 1)
    assert (np.diff(shares[: best + 1]) > 0).all()
    assert (np.diff(shares[best:]) < 0).all()
    assert shares[115] == pytest.approx(0.5, abs=0.01)
    assert shares[-1] == pytest.approx(0)


@pytest.mark.parametrize('shape', [(40, 40), (64, 32), (33, 90)])
def test_orthogonalize_maps_singular_values_by_its_polynomial(shape):
    x = torch.randn(shape, generator=seeded()).double()
    u, value, v = torch.linalg.svd(x, full_matrices=False)
    value = value / value.norm()
    a, b, c = COEFFICIENTS
    for _ in range(5):
        value = a * value + b * value**3 + c * value**5
    out = orthogonalize(x, COEFFICIENTS, 5)
    torch.testing.assert_close(out, (u * value) @ v)


def test_orthogonalize_zero():
    zero = torch.zeros(32, 40)
    assert torch.equal(orthogonalize(zero, COEFFICIENTS, 5), zero)


def test_muon_is_that_of_pytorch_in_full_precision():
    options = {'lr': 0.02, 'weight_decay': 0.1, 'adjust_lr_fn': 'match_rms_adamw'}
    first = [torch.randn(size, generator=seeded()) for size in ((40, 40), (64, 32))]
    results = []
    for optimizer_type in (Muon, torch.optim.Muon):
        params = [torch.nn.Parameter(value.clone()) for value in first]
        unused = torch.nn.Parameter(torch.ones(32, 32))
        optimizer = optimizer_type([*params, unused], **options)
        for step in range(4):
            for param in params:
                param.grad = torch.randn(param.shape, generator=seeded(step))
            optimizer.step()
        assert torch.equal(unused, torch.ones(32, 32))
        results.append([(p - x).detach() for p, x in zip(params, first, strict=True)])
    for change, expected in zip(*results, strict=True):
        # bfloat16 has eight bits.
        assert (change - expected).norm() < 0.02 * expected.norm()
        assert change.norm() > 0


@pytest.mark.parametrize('is_fast', [True, False])
def test_matrices_are_orthogonalized_in_a_fast_precision(is_fast, monkeypatch):
    monkeypatch.setattr(_optimizers, 'has_fast_bfloat16', lambda device: is_fast)
    _, muon = make_optimizers(TableNet(5, 40, 2), SimpleNamespace(**OPTIONS))
    assert type(muon) is (torch.optim.Muon if is_fast else Muon)
    options = muon.param_groups[0]
    # What the other one does not read.
    assert options['nesterov']
    assert options['adjust_lr_fn'] == 'match_rms_adamw'
    assert options['ns_coefficients'] == COEFFICIENTS
