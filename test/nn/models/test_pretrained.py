"""Models in folders, and on a model hub that is not asked."""

import copy
import json
import pickle
import warnings

import pytest
import torch
from oracles import seeded
from torch_geometric.nn import MeanAggregation, model_hub
from torch_geometric.nn.model_hub import PyGModelHubMixin

import torch_geometric_gsl as gsl
from torch_geometric_gsl import GSLNet, NodeClassifier, _files
from torch_geometric_gsl.nn.models import pretrained

N, IN, OUT = 12, 6, 3
TRANSITION = {'num_transition_nodes': 5, 'num_nodes': N}
MODELS = {
    'GSLNet': [
        {},
        TRANSITION,
        {
            'similarity': 'linear',
            'z_channels': -1,
            'train_scale': True,
            'null_score': 0.0,
        },
        {'similarity_kwargs': {'bias': True, 'c_scale': 0.2}, 'observed': 'prior'},
        {'scale': 'auto', 'task': 'regression'},
        {'readout': 'mean', 'act': None},
    ],
    'MLPClassifier': [{}],
    'KNNGCN': [{'k': 3}, {'k': 3, 'root_weight': True, 'cached': True}],
    'KNNLINKX': [{'k': 3, 'num_nodes': N}],
    'SLAPS': [{'k': 3}, {'k': 3, 'graph_generator': 'mlp_d'}],
    'SUBLIME': [{'k': 3}, {'k': 3, 'dropout': (0.1, 0.2), 'graph_generator': 'mlp'}],
    'HESGSL': [{'k': 3}],
    'NodeFormer': [{'heads': 2}],
    'IDGL': [{'k': 3}],
    'IDGLAnchor': [{'k': 3, 'num_anchors': 5}],
}
CASES = [
    pytest.param(name, kwargs, id=f'{name}-{number}')
    for name, several in MODELS.items()
    for number, kwargs in enumerate(several)
]


def features(seed=3):
    return torch.rand(N, IN, generator=seeded(seed))


def make(name='GSLNet', **kwargs):
    """A model whose parameters are not those of its seed."""
    torch.manual_seed(5)
    model = getattr(gsl, name)(IN, 8, 2, OUT, **kwargs)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.rand(parameter.shape, generator=seeded(1)))
    return model.eval()


def edit(folder, **changes):
    path = folder / 'config.json'
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **changes}))


def test_all_models_are_covered():
    found = {
        name
        for name in gsl.__all__
        if isinstance(kind := getattr(gsl, name), type)
        and issubclass(kind, NodeClassifier)
    }
    assert found == {*MODELS, 'NodeClassifier'}
    assert issubclass(NodeClassifier, PyGModelHubMixin)


@pytest.mark.parametrize(('name', 'kwargs'), CASES)
def test_round_trip(name, kwargs, tmp_path):
    model = make(name, **kwargs)
    assert model.save_pretrained(tmp_path / 'deep' / 'model') is None
    again = type(model).from_pretrained(tmp_path / 'deep' / 'model')
    assert type(again) is type(model)
    assert repr(again) == repr(model)
    assert not again.training
    state = again.state_dict()
    assert state.keys() == model.state_dict().keys()
    for key, value in model.state_dict().items():
        assert torch.equal(state[key], value), key
    for seed in (3, 4):
        assert torch.equal(again(features(seed)), model(features(seed)))
    # What was loaded is trained on, and saved again.
    loss = again.train()(features()).square().sum()
    loss.backward()
    assert any(parameter.grad is not None for parameter in again.parameters())
    again.save_pretrained(tmp_path)
    NodeClassifier.from_pretrained(str(tmp_path))


def test_the_base_class_loads_all_of_them(tmp_path):
    make('KNNGCN', k=3).save_pretrained(tmp_path)
    assert type(NodeClassifier.from_pretrained(tmp_path)) is gsl.KNNGCN
    with pytest.raises(ValueError, match=r"holds a KNNGCN, not one of \['GSLNet'\]"):
        GSLNet.from_pretrained(tmp_path)


def test_a_subclass_of_a_user(tmp_path):
    class Named(GSLNet):
        def __init__(self, width, *, label='a'):
            super().__init__(IN, width, 2, OUT)
            self.label = label

    torch.manual_seed(5)
    model = Named(4, label='b').eval()
    model.save_pretrained(tmp_path)
    again = Named.from_pretrained(tmp_path)
    assert again.label == 'b'
    assert torch.equal(again(features()), model(features()))


@pytest.mark.parametrize('dtype', [torch.float64, torch.bfloat16])
def test_types_of_the_weights(dtype, tmp_path):
    model = make().to(dtype)
    model.save_pretrained(tmp_path)
    x = features().to(dtype)
    assert torch.equal(GSLNet.from_pretrained(tmp_path)(x), model(x))


def test_state_beside_the_parameters(tmp_path):
    model = make(scale='auto')
    model.choose_scale(lambda model: float(model.chosen_scale == 10), (1, 10))
    model.eval().index(features(seed=9)).save_pretrained(tmp_path)
    again = GSLNet.from_pretrained(tmp_path)
    assert again.convs[0].sampler.scale == 10
    assert torch.equal(again(features()), model(features()))


def test_width_from_the_first_input(tmp_path):
    torch.manual_seed(5)
    model = GSLNet(-1, 8, 2, OUT).eval()
    with pytest.raises(ValueError, match="'in_channels' must be known"):
        model.save_pretrained(tmp_path)
    assert list(tmp_path.iterdir()) == []
    expected = model(features())
    model.save_pretrained(tmp_path)
    assert torch.equal(GSLNet.from_pretrained(tmp_path)(features()), expected)


def test_copies_know_their_arguments(tmp_path):
    model = make(k=3)
    for number, twin in enumerate(
        [copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    ):
        twin.save_pretrained(tmp_path / str(number))
        again = GSLNet.from_pretrained(tmp_path / str(number))
        assert again.convs[0].sampler.k == 3
        assert torch.equal(again(features()), model(features()))


@pytest.mark.parametrize(
    ('name', 'kwargs'),
    [
        ('similarity', {'similarity': gsl.LinearSimilarity(8), 'z_channels': -1}),
        ('act', {'act': torch.tanh}),
        ('readout', {'readout': MeanAggregation()}),
        ('dropout', {'dropout': torch.tensor(0.5)}),
    ],
)
def test_arguments_that_are_no_plain_values(name, kwargs, tmp_path):
    if name == 'dropout':
        model = make()
        model._given.update(kwargs)  # No model of the package takes one.
    else:
        model = GSLNet(8, 8, 2, OUT, **kwargs)
    folder = tmp_path / 'none'
    with pytest.raises(TypeError, match=f"'{name}' must be a plain value"):
        model.save_pretrained(folder)
    assert not folder.exists()


def test_wrong_arguments_are_told_by_the_constructor():
    with pytest.raises(TypeError, match='unexpected keyword argument'):
        GSLNet(IN, 8, 2, OUT, nothing=1)
    with pytest.raises(TypeError, match='missing'):
        GSLNet(IN)


class Bomb:
    def __reduce__(self):
        return exec, ('raise RuntimeError("executed")',)


def test_damaged_weights(tmp_path, monkeypatch):
    make().save_pretrained(tmp_path)
    weights = tmp_path / 'model.pth'
    content = weights.read_bytes()
    spoiled = bytearray(content)
    spoiled[len(content) // 2] ^= 1
    for damage in (content[:-1], content[: len(content) // 2], b'', bytes(spoiled)):
        weights.write_bytes(damage)
        with pytest.raises(OSError, match=r'model\.pth.* is damaged'):
            GSLNet.from_pretrained(tmp_path)
    # Even where the digest is that of what is there.
    for value, reason in [
        (Bomb(), 'holds no saved weights: it refers to'),
        ([1], r'got a list'),
    ]:
        torch.save(value, weights)
        edit(tmp_path, sha256=pretrained._digest(weights))
        with pytest.raises(OSError, match=reason) as caught:
            GSLNet.from_pretrained(tmp_path)
        assert 'trust' not in str(caught.value)
    weights.unlink()
    with pytest.raises(FileNotFoundError):
        GSLNet.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ('text', 'kind', 'reason'),
    [
        ('{"format": 1', OSError, 'is damaged'),
        ('[]', OSError, "was not written by 'save_pretrained'"),
        ('{"hidden_channels": 8}', OSError, "was not written by 'save_pretrained'"),
        ('{"format": 1, "class": "GSLNet"}', OSError, 'it must have'),
        (
            '{"format": 1, "class": [], "arguments": {}, "sha256": ""}',
            OSError,
            'is damaged',
        ),
        ('{"format": 2}', ValueError, r'must have the format 1, .*\(got 2\)'),
    ],
)
def test_damaged_config(text, kind, reason, tmp_path):
    make().save_pretrained(tmp_path)
    (tmp_path / 'config.json').write_text(text)
    with pytest.raises(kind, match=reason):
        GSLNet.from_pretrained(tmp_path)


def test_config_of_another_model(tmp_path):
    make().save_pretrained(tmp_path)
    given = json.loads((tmp_path / 'config.json').read_text())['arguments']
    edit(tmp_path, **{'class': 'os.system'})
    with pytest.raises(ValueError, match=r'holds a os\.system, not one of'):
        NodeClassifier.from_pretrained(tmp_path)
    for arguments, reason in [
        ({**given, 'nothing': 1}, 'has arguments that GSLNet does not take'),
        ({**given, 'dropout': 2}, "'dropout' must lie in"),
        ({**given, 'hidden_channels': 9}, 'holds the weights of another GSLNet'),
        ({**given, 'num_layers': 3}, 'holds the weights of another GSLNet'),
    ]:
        edit(tmp_path, **{'class': 'GSLNet', 'arguments': arguments})
        with pytest.raises(ValueError, match=reason):
            GSLNet.from_pretrained(tmp_path)


def test_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match='is not a folder with a saved model'):
        GSLNet.from_pretrained(tmp_path / 'none')
    with pytest.raises(FileNotFoundError):
        GSLNet.from_pretrained(tmp_path)


def test_a_failed_write_leaves_the_model_that_was_there(tmp_path, monkeypatch):
    first = make()
    first.save_pretrained(tmp_path)

    def fail(*args):
        raise OSError('no space left')

    monkeypatch.setattr(_files.os, 'replace', fail)
    with pytest.raises(OSError, match='no space left'):
        make(k=3).save_pretrained(tmp_path)
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ['config.json', 'model.pth']
    assert torch.equal(GSLNet.from_pretrained(tmp_path)(features()), first(features()))


def test_the_hub_needs_its_library(tmp_path, monkeypatch):
    monkeypatch.setattr(model_hub, 'hf_hub_download', None)
    folder = tmp_path / 'model'
    with pytest.raises(ImportError, match="pip install 'huggingface_hub'"):
        make().save_pretrained(folder, push_to_hub=True)
    assert not folder.exists()
    with pytest.raises(ImportError, match="'someone/model' is not a folder"):
        GSLNet.from_pretrained('someone/model')
    with pytest.raises(TypeError, match=r"'push_to_hub' must be set \(got \['private"):
        make().save_pretrained(folder, private=True)


def test_to_the_hub_and_back(tmp_path, monkeypatch):
    """With the hub's own library, whose two calls of a network are replaced."""
    hub_mixin = pytest.importorskip('huggingface_hub.hub_mixin')
    hub = tmp_path / 'hub'
    wanted = []

    class Api:
        def __init__(self, token=None):
            assert token == 'secret'

        def create_repo(self, repo_id, **kwargs):
            return type('Url', (), {'repo_id': repo_id})

        def upload_folder(self, repo_id, folder_path, **kwargs):
            folder_path.rename(hub)
            return f'https://example.org/{repo_id}'

    def download(repo_id, filename, **kwargs):
        wanted.append((repo_id, filename, kwargs['revision']))
        return str(hub / filename)

    monkeypatch.setattr(hub_mixin, 'HfApi', Api)
    monkeypatch.setattr(model_hub, 'hf_hub_download', download)
    model = make()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        url = model.save_pretrained(
            tmp_path / 'model', True, repo_id='someone/model', token='secret'
        )
    assert url == 'https://example.org/someone/model'
    assert sorted(path.name for path in hub.iterdir()) == ['config.json', 'model.pth']
    again = GSLNet.from_pretrained('someone/model', revision='v1')
    assert torch.equal(again(features()), model(features()))
    names = ['config.json', 'model.pth']
    assert wanted == [('someone/model', name, 'v1') for name in names]


def test_an_absolute_path_is_no_name_on_the_hub(tmp_path):
    with pytest.raises(FileNotFoundError, match='is not a folder with a saved model'):
        GSLNet.from_pretrained(str(tmp_path / 'none'))
