"""An index is kept as computed, until training or another state drops it."""

import copy
import pickle

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl import DistanceSimilarity, GSLNet, TableNet
from torch_geometric_gsl.nn.models.row_index import NewRowsWarning

N, IN = 40, 6
NETS = {
    'GSLNet': lambda: GSLNet(IN, 8, 2, 1),
    'GSLNet of projections': lambda: GSLNet(IN, 8, 3, 1, z_channels=None),
    'TableNet': lambda: TableNet(IN, 8, 1, num_frequencies=0, eval_k=7),
    'TableNet of cosines': lambda: TableNet(
        IN, 8, 1, num_frequencies=0, eval_k=7, similarity='cosine'
    ),
}
ROWS = torch.randn(N, IN, generator=seeded(1))
NEW = torch.randn(5, IN, generator=seeded(2))


@pytest.fixture(params=NETS)
def net(request):
    torch.manual_seed(0)
    return NETS[request.param]().eval()


def index_of(net):
    return {k: v for k, v in net.state_dict().items() if k.startswith('index_')}


def check_equal(state, expected):
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[key], expected[key]) for key in state)


def test_an_index_is_kept_as_computed(net):
    expected = net((ROWS, NEW))
    rows = ROWS.clone()
    net.index(rows)
    rows.zero_()
    torch.testing.assert_close(net(NEW), expected)
    before = {k: v.clone() for k, v in index_of(net).items()}
    assert before
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    net(NEW).sum().backward()  # In evaluation mode.
    optimizer.step()
    check_equal(index_of(net), before)
    net.eval()
    check_equal(index_of(net), before)
    assert not torch.allclose(net(NEW), net((ROWS, NEW)), atol=1e-5)
    torch.testing.assert_close(net.index(ROWS)(NEW), net((ROWS, NEW)))


def test_an_index_carries_no_gradient(net):
    net.index(ROWS.clone().requires_grad_())
    assert not any(value.requires_grad for value in index_of(net).values())


def test_training_drops_an_index(net):
    alone = net(NEW)
    parent = torch.nn.Sequential(net)
    for module in (net, parent):
        net.index(ROWS)
        assert not torch.allclose(net(NEW), alone)
        module.train()
        assert index_of(net) == {}
        module.eval()
        assert torch.equal(net(NEW), alone)
    net.index(ROWS).reset_parameters()
    assert index_of(net.clear_index()) == {}


def test_an_index_of_training_mode_waits_for_evaluation(net):
    expected = net((ROWS, NEW))
    assert net.train().index(ROWS) is net
    assert net.training
    with torch.no_grad(), pytest.warns(NewRowsWarning, match="call 'model.eval"):
        net(NEW)
    torch.testing.assert_close(net.eval()(NEW), expected)


def test_a_loaded_state_drops_an_index_or_brings_its_own(net):
    plain = copy.deepcopy(net.state_dict())
    net.index(ROWS).load_state_dict(plain)
    assert index_of(net) == {}
    doubled = copy.deepcopy(net)
    with torch.no_grad():
        next(doubled.parameters()).mul_(2)
    state = doubled.index(ROWS[:30]).state_dict()
    for is_assigned in (False, True):
        net.index(ROWS).load_state_dict(copy.deepcopy(state), assign=is_assigned)
        check_equal(net.state_dict(), state)
        assert torch.equal(net(NEW), doubled(NEW))
    # Not tied to the tensors of the state.
    net.load_state_dict(state)
    before = {k: v.clone() for k, v in index_of(net).items()}
    for value in state.values():
        value.detach().zero_()
    check_equal(index_of(net), before)
    torch.nn.Sequential(net).load_state_dict({f'0.{k}': v for k, v in plain.items()})
    assert index_of(net) == {}


def test_an_index_travels_with_the_model(net, tmp_path):
    expected = net.index(ROWS)(NEW)
    net.save(tmp_path / 'net.pt')
    for copied in (
        copy.deepcopy(net),
        pickle.loads(pickle.dumps(net)),
        type(net).load(tmp_path / 'net.pt'),
    ):
        check_equal(copied.state_dict(), net.state_dict())
        assert torch.equal(copied(NEW), expected)
        copied.train()  # The copy drops its own.
        assert torch.equal(net(NEW), expected)
    wide = copy.deepcopy(net).double()
    assert {v.dtype for v in index_of(wide).values()} == {torch.float64}
    torch.testing.assert_close(wide(NEW.double()).float(), expected)


def test_autocast_and_inference_mode_index_in_full_precision(net):
    expected = net((ROWS, NEW))
    with torch.inference_mode():
        rows = ROWS + 0
        torch.testing.assert_close(net.index(rows)(NEW), expected)
    net(NEW).sum().backward()  # Inference tensors would raise.
    with torch.autocast('cpu', dtype=torch.bfloat16):
        low = net.index(rows)(NEW)
    assert not torch.equal(low, expected)
    torch.testing.assert_close(low.float(), expected, atol=0.1, rtol=0.1)
    torch.testing.assert_close(net(NEW), expected)


def test_an_index_that_cannot_be_computed_leaves_the_former(net):
    expected = net.index(ROWS)(NEW)
    layer = net.encoder if isinstance(net, TableNet) else net.convs[0]

    def refuse(*_):
        raise RuntimeError('refused')

    handle = layer.register_forward_pre_hook(refuse)
    with pytest.raises(RuntimeError, match='refused'):
        net.index(-ROWS)
    handle.remove()
    assert torch.equal(net(NEW), expected)


def test_an_index_is_searched_by_the_loaded_projection():
    def make(seed):
        torch.manual_seed(seed)
        similarity = DistanceSimilarity(4, 3)
        options = {'num_frequencies': 0, 'eval_k': 7, 'similarity': similarity}
        return TableNet(IN, 8, 1, **options).eval()

    net, other = make(0), make(1).index(ROWS)
    net.load_state_dict(other.state_dict())
    assert torch.equal(net(NEW), other(NEW))
    with torch.no_grad():
        net.neighbours.sampler.similarity.lin.weight.mul_(2)
    torch.testing.assert_close(net(NEW), net((ROWS, NEW)))


@pytest.mark.parametrize('similarity', ['cosine', 'distance'])
def test_an_index_in_double_precision_is_loaded(similarity, tmp_path):
    net = TableNet(IN, 8, 1, num_frequencies=0, eval_k=7, similarity=similarity)
    net.double().eval().index(ROWS.double()).save(tmp_path / 'net.pt')
    again = TableNet.load(tmp_path / 'net.pt')
    assert torch.equal(again(NEW.double()), net(NEW.double()))
