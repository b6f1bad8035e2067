"""Models in files."""

import copy
import pickle

import pytest
import torch
from oracles import seeded
from torch_geometric.nn import MeanAggregation

import torch_geometric_gsl as gsl
from torch_geometric_gsl import Budget, GSLNet, NodeClassifier, TableNet

N, IN, OUT = 12, 6, 3
OPTIONS = [
    {},
    {'num_transition_nodes': 5, 'num_nodes': N},
    {'similarity': 'linear', 'z_channels': -1, 'train_scale': True, 'null_score': 0.0},
    {'similarity_kwargs': {'share': 0.2}, 'root_weight': False},
    {'scale': 3.0, 'task': 'regression'},
    {'readout': 'mean', 'act': None},
]


def features(seed=3):
    return torch.rand(N, IN, generator=seeded(seed))


def make(**options):
    """A model whose parameters are not those of its seed."""
    torch.manual_seed(5)
    model = GSLNet(IN, 8, 2, OUT, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.rand(parameter.shape, generator=seeded(1)))
    return model.eval()


@pytest.mark.parametrize('options', OPTIONS)
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16])
def test_round_trip(options, dtype, tmp_path):
    model, x = make(**options).to(dtype), features().to(dtype)
    model.save(tmp_path / 'model.pt')
    again = GSLNet.load(tmp_path / 'model.pt')
    assert type(again) is GSLNet
    assert repr(again) == repr(model)
    assert not again.training
    state = again.state_dict()
    assert state.keys() == model.state_dict().keys()
    for key, value in model.state_dict().items():
        assert torch.equal(state[key], value), key
    assert torch.equal(again(x), model(x))
    # What was loaded is trained on, and saved again.
    again.train()(x).square().sum().backward()
    assert any(parameter.grad is not None for parameter in again.parameters())
    again.save(tmp_path / 'model.pt')
    NodeClassifier.load(str(tmp_path / 'model.pt'))


def test_a_subclass_of_a_user(tmp_path):
    class Named(GSLNet):
        def __init__(self, width, *, label='a'):
            super().__init__(IN, width, 2, OUT)
            self.label = label

    torch.manual_seed(5)
    model = Named(4, label='b').eval()
    model.save(tmp_path / 'model.pt')
    again = Named.load(tmp_path / 'model.pt')
    assert again.label == 'b'
    assert torch.equal(again(features()), model(features()))


def test_width_from_the_first_input(tmp_path):
    torch.manual_seed(5)
    model = GSLNet(-1, 8, 2, OUT).eval()
    with pytest.raises(ValueError, match="'in_channels' must be known"):
        model.save(tmp_path / 'model.pt')
    assert list(tmp_path.iterdir()) == []
    expected = model(features())
    model.save(tmp_path / 'model.pt')
    assert torch.equal(GSLNet.load(tmp_path / 'model.pt')(features()), expected)


def test_copies_know_their_arguments(tmp_path):
    model = make(k=3)
    twins = copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    for i, twin in enumerate(twins):
        twin.save(tmp_path / str(i))
        again = GSLNet.load(tmp_path / str(i))
        assert again.convs[0].sampler.k == 3
        assert torch.equal(again(features()), model(features()))


@pytest.mark.parametrize(
    ('name', 'kwargs'),
    [
        ('similarity', {'similarity': gsl.LinearSimilarity(8), 'z_channels': -1}),
        ('act', {'act': torch.tanh}),
        ('readout', {'readout': MeanAggregation()}),
    ],
)
def test_arguments_that_are_no_plain_values(name, kwargs, tmp_path):
    folder = tmp_path / 'none'
    with pytest.raises(TypeError, match=f"'{name}' must be a plain value"):
        GSLNet(8, 8, 2, OUT, **kwargs).save(folder)
    assert not folder.exists()


def test_files_of_another_model(tmp_path):
    path = tmp_path / 'model.pt'
    make().save(path)
    content = torch.load(path, weights_only=True)
    options = content['options']
    torch.save(content | {'class': 'os.system'}, path)
    with pytest.raises(ValueError, match=r'hold a GSLNet.* .got a os\.system'):
        NodeClassifier.load(path)
    for changes, reason in [
        ({'nothing': 1}, 'GSLNet has no option'),
        ({'dropout': 2}, "'dropout' must lie in"),
        ({'hidden_channels': 9}, 'size mismatch'),
        ({'num_layers': 3}, 'Missing key'),
    ]:
        torch.save(content | {'options': options | changes}, path)
        with pytest.raises(ValueError, match=f'cannot be restored: (.|\n)*{reason}'):
            GSLNet.load(path)


def test_options_of_samplers_that_were_set_later_are_kept(tmp_path):
    model, table = GSLNet(6, 8, 2, 4), TableNet(6, 8, 1, num_frequencies=0)
    sampler = model.convs[0].sampler
    sampler.eval_k, sampler.tau, sampler.budget = 3, 0.2, Budget(memory=2**20)
    table.neighbours.sampler.eval_k = 5
    x = torch.randn(30, 6)
    for net in (model.eval(), table.eval()):
        net.save(tmp_path / 'net.pt')
        again = type(net).load(tmp_path / 'net.pt')
        assert torch.equal(again(x), net(x))
    model.save(tmp_path / 'net.pt')
    loaded = GSLNet.load(tmp_path / 'net.pt').convs[1].sampler
    assert (loaded.eval_k, loaded.tau) == (3, 0.2)
    assert loaded.budget == Budget(memory=2**20)


def test_a_budget_that_does_not_suit_the_first_options(tmp_path):
    model = make(budget=Budget(arrivals=8), eval_k=None)
    for conv in model.convs:
        conv.sampler.budget = Budget(memory=2**20)
        conv.sampler.replace = False
    model.save(tmp_path / 'model.pt')
    loaded = GSLNet.load(tmp_path / 'model.pt')
    assert torch.equal(loaded(features()), model(features()))
    sampler = loaded.convs[0].sampler
    assert sampler.budget == Budget(memory=2**20)
    assert not sampler.replace
