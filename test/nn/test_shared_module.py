"""Each part of a module is registered once, whoever else uses it."""

import copy
import pickle

import pytest
import torch
from test_public_interface import CASES, IN, OUT, RELATIONS, TRANSITION, N, features
from torch.func import functional_call

from torch_geometric_gsl import (
    DirectedSimilarity,
    GSLNet,
    HeteroLatentGraphConv,
    LatentGraphConv,
    LinearSimilarity,
)
from torch_geometric_gsl.diagnostics import describe_model
from torch_geometric_gsl.distributed import RowShard
from torch_geometric_gsl.nn.shared_module import evaluation


def weighted(width):
    return LinearSimilarity(width, feature_weights=True)


# Every option that lets several modules use the same part.
SHARING = {
    'net': lambda: GSLNet(IN, 8, 3, OUT),
    'net-act': lambda: GSLNet(IN, 8, 3, OUT, act=torch.nn.PReLU()),
    'net-similarity': lambda: GSLNet(IN, 8, 2, 8, weighted(8), z_channels=None),
    'net-similarity-z': lambda: GSLNet(IN, 8, 2, OUT, weighted(IN)),
    'net-directed': lambda: GSLNet(
        IN, 8, 2, 8, DirectedSimilarity(weighted(4)), z_channels=None
    ),
    'net-transition': lambda: GSLNet(IN, 8, 2, 8, weighted(8), **TRANSITION),
    'hetero': lambda: HeteroLatentGraphConv(IN, OUT, RELATIONS, weighted(OUT)),
}
SHARED = [pytest.param(factory, id=name) for name, factory in SHARING.items()]


def names_of(entries):
    """The names of each part that has several."""
    by_id = {}
    for name, value in entries:
        by_id.setdefault(id(value), []).append(name)
    return [names for names in by_id.values() if len(names) > 1]


def call(module, x):
    torch.manual_seed(3)
    return module(x)


@pytest.mark.parametrize('factory', [*CASES, *SHARED])
def test_every_part_is_registered_once(factory):
    module = factory()
    assert names_of(module.named_modules(remove_duplicate=False)) == []
    assert names_of(module.named_buffers(remove_duplicate=False)) == []
    parameters = dict(module.named_parameters(remove_duplicate=False))
    assert names_of(parameters.items()) == []
    assert {*module.state_dict()} >= {*parameters}


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('factory', [*CASES, *SHARED])
def test_functional_call_leaves_the_module_as_it_was(factory, training):
    torch.manual_seed(1)
    module = factory().train(training)
    x = features(module)
    call(module, x)  # Initializes lazy parameters.
    before = dict(module.named_parameters())
    values = copy.deepcopy(module.state_dict())
    with torch.no_grad():
        moved = {name: p + 0.1 * torch.rand_like(p) for name, p in before.items()}
    # A loss updates buffers in training mode.
    moved |= {name: buffer.clone() for name, buffer in module.named_buffers()}
    twin = copy.deepcopy(module)
    twin.load_state_dict(moved, strict=False)
    expected = call(twin, x)
    torch.manual_seed(3)
    out = functional_call(module, moved, (x,))
    torch.testing.assert_close(out, expected, rtol=0, atol=0)
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        functional_call(module, moved, (torch.randn(N, IN + 1),))
    assert {name: id(value) for name, value in module.named_parameters()} == {
        name: id(value) for name, value in before.items()
    }
    torch.testing.assert_close(dict(module.state_dict()), dict(values), rtol=0, atol=0)


@pytest.mark.parametrize('how', ['deepcopy', 'pickle', 'state_dict', 'assign'])
@pytest.mark.parametrize('factory', SHARED)
def test_copies_share_their_own_parts(factory, how):
    module = factory()
    x = features(module)
    call(module, x)
    if how in ('deepcopy', 'pickle'):
        twin = copy.deepcopy(module)
        if how == 'pickle':
            twin = pickle.loads(pickle.dumps(module))
    else:
        twin = factory()
        call(twin, x)
        twin.load_state_dict(module.state_dict(), assign=how == 'assign')
    names = [[name for name, _ in net.named_parameters()] for net in (module, twin)]
    assert names[0] == names[1]
    for net in (module, twin):
        net.eval().double()
    x = {k: v.double() for k, v in x.items()} if isinstance(x, dict) else x.double()
    expected = module(x)
    torch.testing.assert_close(twin(x), expected, rtol=0, atol=0)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(0.3)
    if how != 'assign':  # Assigned parameters are those of the first.
        torch.testing.assert_close(module(x), expected, rtol=0, atol=0)


def test_a_replaced_sampler_serves_all_layers():
    net = GSLNet(IN, 8, 2, OUT)
    net.convs[0].sampler = LatentGraphConv(IN, OUT, k=2).sampler
    assert net.convs[1].sampler is net.convs[0].sampler
    net.convs[0].sampler.similarity = weighted(IN)
    assert net.convs[1].sampler.similarity is net.convs[0].sampler.similarity
    net.convs[1].sampler = LatentGraphConv(IN, OUT, k=3).sampler
    assert [conv.sampler.k for conv in net.convs] == [2, 3]


def test_sharing_in_a_circle_has_one_owner():
    owner, middle, last = (LatentGraphConv(IN, IN) for _ in range(3))
    owner.share_sampler(owner)
    middle.share_sampler(owner)
    owner.share_sampler(middle)
    last.share_sampler(middle)
    assert {conv.sampler for conv in (middle, last)} == {owner.sampler}
    owners = [conv for conv in (owner, middle, last) if 'sampler' in conv._modules]
    assert owners == [owner]


def test_a_layer_taken_out_works():
    net = GSLNet(IN, IN, 2, OUT)
    x, last = torch.randn(N, IN), net.convs[1]
    assert 'sampler.log_scale' not in last.state_dict()
    with evaluation(last) as twin:
        assert not twin.sampler.training
        expected = twin(x)
    assert last.sampler.training
    assert [each.name for each in describe_model(last, x).layers] == ['sampler']
    with evaluation(last) as twin:
        torch.testing.assert_close(twin(x, shard=RowShard(N)), expected)
    before = net.convs[0].sampler.log_scale.detach().clone()
    last.sampler.log_scale.data += 1
    last.reset_parameters()
    assert net.convs[0].sampler.log_scale == before + 1
    last.sampler = copy.deepcopy(last.sampler)
    assert last.sampler is not net.convs[0].sampler
    assert 'sampler.log_scale' in last.state_dict()


# The tracer looks at this attribute itself, and hides the warning from users.
@pytest.mark.filterwarnings('ignore:The .grad attribute of a Tensor:UserWarning')
def test_a_compiled_net_shares_its_sampler():
    torch.compiler.reset()
    net = GSLNet(IN, 8, 2, OUT).eval()
    x = torch.randn(N, IN)
    compiled = torch.compile(net, backend='eager')
    torch.testing.assert_close(compiled(x), net(x))
    with torch.no_grad():
        net.convs[0].sampler.log_scale += 1
    torch.testing.assert_close(compiled(x), net(x))


def test_what_has_no_sampler_lends_none():
    with pytest.raises(TypeError, match=r"'other' must be a layer with a .* \(got int"):
        LatentGraphConv(4, 4).share_sampler(3)
