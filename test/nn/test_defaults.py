"""The defaults of layers and nets, which validation chose, and the printed model."""

import pytest
import torch

from torch_geometric_gsl import (
    GSLNet,
    GumbelKNNSampler,
    LatentGraphConv,
    LinearSimilarity,
    MixtureSimilarity,
)
from torch_geometric_gsl.datasets import HiddenRelation
from torch_geometric_gsl.nn.similarity.gaussian_similarity import (
    NeuralGaussianSimilarity,
)


def settings(sampler):
    """Return the numbers of a sampler."""
    scale = (
        sampler.scale if sampler.log_scale is None else sampler.log_scale.exp().detach()
    )
    return (sampler.k, sampler.tau, float(scale), sampler.loop, sampler.num_nearest)


def test_the_printed_model_in_each_form_of_a_call():
    for net in (GSLNet.paper(6, 8, 2, 3), GSLNet.paper(6, 8, 2, 3, 'neural_gaussian')):
        for conv in net.convs:
            similarity = conv.sampler.similarity
            assert settings(conv.sampler) == (5, 0.25, 1.0, True, None)
            assert type(similarity) is NeuralGaussianSimilarity
            assert (similarity.c_scale, similarity.bias_b) == (0.1, None)
            assert conv.sampler.log_scale is None
        assert net.z_channels is None
        assert type(net.act) is torch.nn.ELU
    assert settings(LatentGraphConv.paper(6, 8).sampler) == (5, 0.25, 1.0, True, None)
    conv = LatentGraphConv.paper(6, 8, LinearSimilarity(8), 3, 0.5, scale=2.0)
    assert settings(conv.sampler) == (3, 0.5, 2.0, True, None)
    assert type(conv.sampler.similarity) is LinearSimilarity


def test_the_defaults_are_others():
    net = GSLNet(6, 8, 2, 3)
    for sampler in (net.convs[1].sampler, LatentGraphConv(6, 8).sampler):
        values = settings(sampler)
        assert values == (5, 0.5, pytest.approx(20.0), False, None)
        assert sampler.log_scale.requires_grad
        assert type(sampler.similarity) is MixtureSimilarity
        assert settings(GumbelKNNSampler(sampler.similarity)) == values
    assert net.z_channels == 6
    assert type(net.act) is torch.nn.ReLU
    # Projections are compared where the input cannot be.
    for options in (
        {'in_channels': -1},
        {'num_transition_nodes': 4, 'transition': 'free'},
        {'similarity': LinearSimilarity(8), 'out_channels': 8},
    ):
        sizes = {'in_channels': 6, 'hidden_channels': 8, 'num_layers': 2}
        assert GSLNet(**{**sizes, 'out_channels': 3, **options}).z_channels is None


def test_a_default_layer_finds_a_hidden_relation():
    torch.manual_seed(0)
    conv = LatentGraphConv(1, 1, z_channels=2, root_weight=False)
    # With a negative weight the bell first moves away from the relation.
    torch.nn.init.ones_(conv.lin.weight)
    optimizer = torch.optim.Adam(conv.parameters(), lr=0.03)
    for data in HiddenRelation(300, delta=110, seed=1):
        optimizer.zero_grad()
        (conv(data.x, z=data.pos) - data.y).square().mean().backward()
        optimizer.step()
    conv.eval()
    graphs = list(HiddenRelation(20, delta=110, seed=2))
    with torch.no_grad():
        wrong = sum((conv(g.x, z=g.pos) - g.y).square().mean() for g in graphs)
    assert float(wrong / sum(g.y.var(correction=0) for g in graphs)) < 0.4
