"""What a description of a model tells of several relations."""

import pytest
import torch

from torch_geometric_gsl import GSLNet, MultiplexLatentGraphConv
from torch_geometric_gsl.diagnostics import describe_model

pytestmark = pytest.mark.filterwarnings('ignore:neighbours are drawn almost uniformly')


@pytest.mark.parametrize('shares', ['global', 'node'])
def test_describe_model_tells_relations_apart(shares):
    conv = MultiplexLatentGraphConv(4, 8, 2, shares=shares, null_score=0.0, scale=5.0)
    torch.nn.init.normal_(next(conv.mixture.parameters()))
    x = torch.randn(9, 4)
    layers = describe_model(conv, x=x).layers
    assert [layer.name for layer in layers] == [
        'relations.0.sampler',
        'relations.1.sampler',
    ]
    h = x @ conv.relations[0].lin.weight.t()
    for number, layer in enumerate(layers):
        spread = conv.relations[number].sampler.distribution(h)
        torch.testing.assert_close(layer.effective_candidates, spread.effective)
        torch.testing.assert_close(layer.null, spread.null)
        expected = conv.shares(x)[..., number]
        torch.testing.assert_close(layer.mixture, expected.detach())
    assert not torch.equal(layers[0].null, layers[1].null)
    assert 'mixture share' in str(layers[0])


def test_describe_model_tells_layers_of_shared_samplers_apart():
    model = GSLNet(4, 8, 2, 3, num_relations=2, z_channels=-1)
    with torch.no_grad():
        model.convs[1].mixture.logits.copy_(torch.tensor([0.0, 2.0]))
    layers = describe_model(model, torch.randn(9, 4)).layers
    shares = [share for conv in model.convs for share in conv.shares().tolist()]
    assert [float(layer.mixture) for layer in layers] == pytest.approx(shares)
    # A sampler by itself is no part of a mixture.
    sampler = model.convs[0].relations[0].sampler
    (layer,) = describe_model(sampler, torch.randn(9, 4)).layers
    assert layer.mixture is None
