import pytest
import torch
from oracles import seeded

from reproduction.self_supervision import leave_one_out_loss
from torch_geometric_gsl import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, resolve_similarity

DOUBLE = {'dtype': torch.float64}
Y = torch.tensor([0, 1, 1, 0, 2, 2, 1, 0, 0, 1])


def build(name='linear', width=None, **options):
    similarity = resolve_similarity(name, 4, out_channels=width)
    return GumbelKNNSampler.paper(similarity, loop=False, **options).double()


def features(n=10):
    return torch.randn(n, 4, generator=seeded(1), **DOUBLE)


@pytest.mark.parametrize('name', ['linear', 'gaussian', 'neural_gaussian', 'cosine'])
def test_noise_free_loss_against_its_definition(name):
    sampler, x = build(name, scale=3.0, tau=0.5).eval(), features()
    weight = (3.0 * sampler.similarity(x) / 0.5).detach()
    weight = weight.fill_diagonal_(-torch.inf).softmax(dim=1)
    expected = 0.0
    for i in range(10):
        share = sum(float(weight[i, j]) for j in range(10) if Y[j] == Y[i])
        expected -= torch.tensor(share, **DOUBLE).log() / 10
    found = leave_one_out_loss(sampler, x, Y)
    torch.testing.assert_close(found.detach(), expected, rtol=1e-9, atol=1e-12)


def test_gradcheck():
    sampler = build('neural_gaussian', width=3, tau=0.5).eval()
    x = features().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: leave_one_out_loss(sampler, x, Y), x)


@pytest.mark.parametrize('method', ['dense', 'stream', 'race'])
@pytest.mark.parametrize('name', sorted(set(SIMILARITIES) - {'uniform'}))
def test_a_drawn_graph_is_that_of_the_sampler(name, method):
    sampler, x = build(name, width=3, method=method, tau=0.5), features()
    found = leave_one_out_loss(sampler, x, Y, generator=seeded(2))
    (source, target), weight = sampler(x, generator=seeded(2))
    assert (source != target).all()
    share = torch.zeros(10, **DOUBLE).index_add(
        0, target, weight * (Y[source] == Y[target])
    )
    expected = -share.clamp(min=torch.finfo(torch.float64).eps).log().mean()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    for parameter in torch.autograd.grad(found, list(sampler.parameters())):
        assert parameter.abs().max() > 0


def test_a_lonely_label_is_a_constant():
    sampler, x = build('neural_gaussian', k=2).eval(), features(5)
    y = torch.tensor([0, 0, 0, 0, 1])
    eps = torch.finfo(torch.float64).eps
    found = leave_one_out_loss(sampler, x, y)
    own = -torch.tensor(eps, **DOUBLE).log() / 5
    weight = (sampler.similarity(x) / 0.25).fill_diagonal_(-torch.inf).softmax(dim=1)
    others = -weight[:4, :4].sum(dim=1).log().sum() / 5
    torch.testing.assert_close(found, own + others, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ('y', 'error', 'text'),
    [
        (Y.tolist(), TypeError, r"'y' must be a torch\.Tensor \(got list\)"),
        (Y.float(), TypeError, r"'y' must have dtype torch\.int64 \(got torch\.float"),
        (Y[:5], ValueError, r"'y' must have one label per node, .* \(got 5 for 10 n"),
        (Y - 1, ValueError, r"'y' must have no negative labels \(got -1"),
        (torch.arange(10), ValueError, "'y' must have two nodes of one label"),
    ],
)
def test_labels(y, error, text):
    with pytest.raises(error, match=text):
        leave_one_out_loss(build(), features(), y)


def test_arguments():
    with pytest.raises(TypeError, match="'sampler' must be a GumbelKNNSampler"):
        leave_one_out_loss(build().similarity, features(), Y)
    loops = GumbelKNNSampler.paper(resolve_similarity('linear', 4)).double()
    with pytest.raises(ValueError, match=r"'sampler' must have loop=False.*loop=True"):
        leave_one_out_loss(loops, features(), Y)
    with pytest.raises(ValueError, match=r"'y' must have one label .* \(got 0 for 0 n"):
        leave_one_out_loss(build(), features()[:0], Y[:0])
    x = features()
    x[2, 1] = torch.nan
    with pytest.raises(ValueError, match=r"'x' .*NaN"):
        leave_one_out_loss(build(), x, Y)
