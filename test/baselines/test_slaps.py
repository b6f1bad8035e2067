import pytest
import torch
from generated import GENERATORS, LAYOUTS, adjacency, as_layout, build, gcn, words
from oracles import seeded

from torch_geometric_gsl.baselines import SLAPS
from torch_geometric_gsl.ops.masking import mask_features


@LAYOUTS
@GENERATORS
@pytest.mark.parametrize('binary', [True, False])
@torch.no_grad()
def test_denoising_loss_against_matrices(layout, graph_generator, binary):
    options = {'mask_ratio': 2, 'negative_ratio': 1, 'binary': binary}
    model, x = build(SLAPS, graph_generator=graph_generator, **options), words()
    loss = model.denoising_loss(as_layout(x, layout), generator=seeded(3))
    masked = mask_features(x, 2, 1 if binary else None, generator=seeded(3))
    layers = [model.denoiser.first, model.denoiser.last]
    place = masked.row, masked.column
    out = gcn(layers, adjacency(model, x, 'tanh'), masked.x)[place]
    terms = (out - x[place]).square()
    if binary:
        terms = -torch.where(x[place] > 0, out, -out).sigmoid().log()
    assert terms.numel() > 5
    torch.testing.assert_close(loss, terms.mean())


def test_each_network_has_its_dropout():
    x = words()
    for options, changes in (
        ({'adjacency_dropout': (0.5, 0.0), 'dropout': 0.0}, (True, False)),
        ({'adjacency_dropout': (0.0, 0.5), 'dropout': 0.0}, (False, True)),
        ({'adjacency_dropout': 0.0, 'dropout': (0.5, 0.0)}, (True, False)),
        ({'adjacency_dropout': 0.0, 'dropout': (0.0, 0.5)}, (False, True)),
        ({'adjacency_dropout': 0.0, 'dropout': 0.0}, (False, False)),
    ):
        model = build(SLAPS, **{'mask_ratio': 1.0, **options})
        quiet = (model.denoising_loss(x), model(x))
        model.train()
        loud = (model.denoising_loss(x), model(x))
        differ = tuple(not torch.equal(a, b) for a, b in zip(quiet, loud, strict=True))
        assert differ == changes


def test_nothing_hidden():
    loss = build(SLAPS, mask_ratio=1e9).denoising_loss(words())
    assert loss.item() == 0
    loss.backward()
