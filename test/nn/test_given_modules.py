"""A module that a user hands over keeps its state, in nets, layers and samplers."""

import pytest
import torch

import torch_geometric_gsl as gsl

IN_DOC, NEAR = ('word', 'in', 'doc'), ('doc', 'near', 'doc')
WIDTHS = {'word': 4, 'doc': 4}
NETS = {
    'sampler': lambda s: gsl.GumbelKNNSampler(s),
    'paper sampler': lambda s: gsl.GumbelKNNSampler.paper(s),
    'layer': lambda s: gsl.LatentGraphConv(4, 6, s, z_channels=-1),
    'transition': lambda s: gsl.TransitionGraphConv(6, 4, 9, 3, s),
    'anchors': lambda s: gsl.TransitionGraphConv(
        6, 4, None, 3, s, transition='anchors'
    ),
    'sensors': lambda s: gsl.SensorGraphConv(4, 6, 9, 4, s, directed=False),
    'directed': lambda s: gsl.SensorGraphConv(4, 6, 9, 4, s),
    'types': lambda s: gsl.HeteroLatentGraphConv(WIDTHS, 4, [IN_DOC, NEAR], s),
    'table': lambda s: gsl.TableNet(3, 8, 1, similarity=s),
    'net': lambda s: gsl.GSLNet(4, 6, 2, 3, s),
    'paper net': lambda s: gsl.GSLNet.paper(4, 6, 2, 3, s, z_channels=-1),
}


@pytest.mark.parametrize('name', NETS)
def test_a_similarity_keeps_its_state(name):
    similarity = gsl.NeuralGaussianSimilarity(4, bias=True, centre='tanh')
    similarity.begin_at(-0.7)
    before = {key: value.clone() for key, value in similarity.state_dict().items()}
    net = NETS[name](similarity)
    assert any(module is similarity for module in net.modules())
    for key, value in similarity.state_dict().items():
        assert torch.equal(value, before[key]), key
    # Asked for, all parameters begin again.
    net.reset_parameters()
    assert not torch.equal(similarity.bias_b, before['bias_b'])


def test_an_activation_keeps_its_state():
    act = torch.nn.PReLU()
    torch.nn.init.constant_(act.weight, 0.9)
    net = gsl.GSLNet(4, 6, 2, 3, act=act)
    assert float(act.weight.detach()) == pytest.approx(0.9)
    net.reset_parameters()
    assert float(act.weight.detach()) == pytest.approx(0.25)


def test_the_parameters_of_layers_are_initialised_once_each():
    for conv in (gsl.LatentGraphConv(4, 6), gsl.HeteroLatentGraphConv(4, 6, [NEAR])):
        for key, value in conv.state_dict().items():
            assert bool(value.isfinite().all()), key
            if key.rpartition('.')[2] == 'bias':
                assert not value.any()
