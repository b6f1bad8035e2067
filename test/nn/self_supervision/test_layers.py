"""The encoder of both views of a contrast."""

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl.nn.self_supervision.layers import ContrastEncoder
from torch_geometric_gsl.ops.edges import Edges, list_sources

N, IN = 9, 6
LAYOUTS = pytest.mark.parametrize('layout', ['dense', 'sparse'])


def features(layout='dense'):
    x = torch.rand(N, IN, generator=seeded(), dtype=torch.float64) + 1
    return x if layout == 'dense' else x.to_sparse_csr()


def graph():
    """Edges in the order of sums, and the matrix of what each node hears."""
    matrix = torch.rand(N, N, generator=seeded(1), dtype=torch.float64)
    matrix = matrix * (torch.rand(N, N, generator=seeded(2)) < 0.4)
    target, source = matrix.nonzero().t()
    sources = list_sources(torch.stack([source, target]), N)
    return Edges(sources, matrix[target, source]), matrix


def build(dropout=0.0):
    """An encoder whose parameters are no longer those of its beginning."""
    torch.manual_seed(3)
    encoder = ContrastEncoder(IN, 5, 4, 3, dropout).double()
    encoder.reset_parameters()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += torch.randn_like(parameter) / 3
    return encoder


@LAYOUTS
@torch.no_grad()
def test_encoder_against_matrices(layout):
    encoder, x, (edges, matrix) = build(), features(), graph()
    state = encoder.state_dict()
    h = (matrix @ x @ state['first.lin.weight'].t() + state['first.bias']).relu()
    h = matrix @ h @ state['last.lin.weight'].t() + state['last.bias']
    h = h @ state['project_first.weight'].t() + state['project_first.bias']
    h = h.relu() @ state['project_last.weight'].t() + state['project_last.bias']
    torch.testing.assert_close(encoder(features(layout), edges), h)


def test_dropout_is_that_of_the_hidden_samples():
    encoder, (edges, _) = build(dropout=0.5), graph()
    seen = []
    encoder.last.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    encoder(features(), edges)
    encoder.eval()(features(), edges)
    loud, quiet = seen
    kept = loud != 0
    assert 0 < int(kept.sum()) < int((quiet != 0).sum())
    torch.testing.assert_close(loud[kept], 2 * quiet[kept])


def test_resetting_begins_again():
    encoder = build()
    for value in encoder.parameters():
        torch.nn.init.constant_(value, 7.0)
    encoder.reset_parameters()
    for value in encoder.parameters():
        assert not bool((value == 7).any())
    assert not encoder.first.bias.any()
    assert not encoder.last.bias.any()
    shapes = {name: tuple(p.shape) for name, p in encoder.named_parameters()}
    assert shapes == {
        'first.bias': (5,),
        'first.lin.weight': (5, IN),
        'last.bias': (4,),
        'last.lin.weight': (4, 5),
        'project_first.weight': (3, 4),
        'project_first.bias': (3,),
        'project_last.weight': (3, 3),
        'project_last.bias': (3,),
    }
