"""What holds for every public module, whoever wrote it."""

import ast
import copy
import importlib
import inspect
import io
import math
import pickle
import pkgutil
import re
from pathlib import Path

import pytest
import torch
from oracles import check_gradients

import torch_geometric_gsl as gsl

N, IN, OUT = 12, 6, 4
TRANSITION = {'num_transition_nodes': 5, 'num_nodes': N}
FREE = {'num_transition_nodes': 5, 'transition': 'free'}
ANCHORS = {'num_transition_nodes': 5, 'transition': 'anchors'}
RELATIONS = [('a', 'to', 'b'), ('b', 'near', 'b'), ('b', 'of', 'a')]
SMALL = {'embedding_channels': 4, 'projected_channels': 4}


def with_anchors(module):
    return module.choose_anchors(torch.randn(2 * N, IN))


def make_sampler(**kwargs):
    """A sampler that begins without random numbers, as a loss leaves it as it is."""
    similarity = gsl.LinearSimilarity(IN, feature_weights=True)
    return gsl.GumbelKNNSampler.paper(similarity, train_scale=True, **kwargs)


def make_network():
    """A network without numbers, which the layer that takes it initializes."""
    return torch.nn.utils.skip_init(torch.nn.Linear, 2 * IN, OUT)


# How each public module is built; one that is missing here fails a test below.
FACTORIES = {
    'LinearSimilarity': [lambda: gsl.LinearSimilarity(IN, OUT)],
    'DifferenceSimilarity': [lambda: gsl.DifferenceSimilarity(IN, OUT)],
    'GaussianSimilarity': [lambda: gsl.GaussianSimilarity(IN, OUT)],
    'NeuralGaussianSimilarity': [
        lambda: gsl.NeuralGaussianSimilarity(IN, OUT),
        lambda: gsl.NeuralGaussianSimilarity(IN),
    ],
    'DistanceSimilarity': [lambda: gsl.DistanceSimilarity(IN, OUT)],
    'HeatKernelSimilarity': [lambda: gsl.HeatKernelSimilarity(IN, OUT)],
    'MixtureSimilarity': [
        lambda: gsl.MixtureSimilarity(IN, OUT),
        lambda: gsl.MixtureSimilarity(IN, share=0.2),
    ],
    'CosineSimilarity': [
        lambda: gsl.CosineSimilarity(IN, OUT, heads=2),
        lambda: gsl.CosineSimilarity(IN),
    ],
    'DirectedSimilarity': [
        lambda: gsl.DirectedSimilarity(gsl.LinearSimilarity(IN // 2, OUT)),
        lambda: gsl.DirectedSimilarity(gsl.NeuralGaussianSimilarity(IN // 2)),
    ],
    'UniformSimilarity': [],  # Nothing to reset, nothing to learn.
    'GumbelKNNSampler': [
        lambda: gsl.GumbelKNNSampler.paper(gsl.NeuralGaussianSimilarity(IN, OUT)),
        lambda: gsl.GumbelKNNSampler.paper(
            gsl.CosineSimilarity(IN, OUT), method='dense'
        ),
    ],
    'LatentGraphConv': [
        lambda: gsl.LatentGraphConv(IN, OUT),
        lambda: gsl.LatentGraphConv(IN, OUT, 'cosine', method='dense'),
    ],
    'SensorGraphConv': [
        lambda: gsl.SensorGraphConv(IN, OUT, N),
        lambda: gsl.SensorGraphConv(IN, OUT, null_score=0.0),
    ],
    'TransitionGraphConv': [
        lambda: gsl.TransitionGraphConv(IN, OUT, N, 5),
        lambda: gsl.TransitionGraphConv(IN, OUT, **FREE),
        lambda: with_anchors(gsl.TransitionGraphConv(IN, OUT, **ANCHORS)),
    ],
    'HeteroLatentGraphConv': [
        lambda: gsl.HeteroLatentGraphConv(IN, OUT, RELATIONS),
        lambda: gsl.HeteroLatentGraphConv(IN, OUT, RELATIONS, 'cosine', aggr='cat'),
    ],
    'KNNEdgeConv': [
        lambda: gsl.KNNEdgeConv(make_network(), 3),
        lambda: gsl.KNNEdgeConv(make_network(), 3, 'mean', tau=1.0),
    ],
    'GSLNet': [
        lambda: gsl.GSLNet(IN, 8, 2, OUT),
        lambda: gsl.GSLNet(IN, 8, 2, OUT, **TRANSITION),
        lambda: gsl.GSLNet(IN, 8, 2, OUT, **FREE),
        lambda: with_anchors(gsl.GSLNet(IN, 8, 2, OUT, **ANCHORS)),
    ],
    'TableNet': [
        lambda: gsl.TableNet(IN, 8, OUT),
        lambda: gsl.TableNet(IN, 8, OUT, num_frequencies=0, draws=2),
    ],
}


def features(module):
    """The input of a module, whose nodes `b` are as many as those of one type."""
    x = torch.randn(N, IN)
    is_typed = isinstance(module, gsl.HeteroLatentGraphConv)
    return {'a': torch.randn(7, IN), 'b': x} if is_typed else x


def numbers(out):
    """What a module returns, as one tensor that depends on its parameters."""
    if isinstance(out, dict):
        return torch.cat([value.flatten() for value in out.values()])
    return out.edge_weight if isinstance(out, tuple) else out


CASES = [
    pytest.param(factory, id=f'{name}-{i}')
    for name, factories in FACTORIES.items()
    for i, factory in enumerate(factories)
]


def public_modules():
    names = []
    for name in gsl.__all__:
        value = getattr(gsl, name)
        is_module = inspect.isclass(value) and issubclass(value, torch.nn.Module)
        if is_module and not inspect.isabstract(value):
            names.append(name)
    return names


def all_modules():
    """Every Python module of the package, imported."""
    path = gsl.__path__
    names = [info.name for info in pkgutil.walk_packages(path, 'torch_geometric_gsl.')]
    return [gsl, *map(importlib.import_module, names)]


def test_every_public_module_is_covered():
    assert set(FACTORIES) == set(public_modules())


def test_all_resolves():
    assert set(gsl.nn.__all__) < set(gsl.__all__)
    for module in all_modules():
        names = getattr(module, '__all__', [])
        assert len(set(names)) == len(names), module.__name__
        for name in names:
            assert hasattr(module, name), f'{module.__name__}.{name}'
    # A package shows all that the packages below it show.
    for package in ('similarity', 'sampler', 'conv', 'models'):
        below = importlib.import_module(f'torch_geometric_gsl.nn.{package}')
        assert set(below.__all__) <= set(gsl.nn.__all__)


@pytest.mark.parametrize('factory', CASES)
def test_reset_reproduces_a_fresh_init(factory, monkeypatch):
    # Construction draws more than once; the state before the last reset counts.
    states = []
    depth = 0

    def watched(reset):
        def wrapper(self):
            nonlocal depth
            if depth == 0:
                states.append(torch.get_rng_state())
            depth += 1
            reset(self)
            depth -= 1

        return wrapper

    # Also those of private bases, whose reset is that of a public class, and of parts.
    kinds = {base for name in public_modules() for base in getattr(gsl, name).__mro__}
    kinds |= {base for m in factory().modules() for base in type(m).__mro__}
    for cls in kinds:
        is_own = cls.__module__.startswith('torch_geometric_gsl')
        if is_own and 'reset_parameters' in vars(cls):
            monkeypatch.setattr(cls, 'reset_parameters', watched(cls.reset_parameters))
    torch.manual_seed(1)
    module = factory()
    fresh = {name: value.clone() for name, value in module.state_dict().items()}
    assert fresh
    for name, value in module.state_dict().items():
        if name != 'anchors':  # Data, which a reset leaves as they are.
            value.fill_(7)
    torch.set_rng_state(states[-1])
    module.reset_parameters()
    torch.testing.assert_close(dict(module.state_dict()), fresh, rtol=0, atol=0)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('factory', CASES)
def test_every_parameter_gets_a_gradient(factory, training):
    torch.manual_seed(1)
    module = factory().train(training)
    x = features(module)
    if isinstance(module, gsl.NodeClassifier):
        # A part of a model may serve its loss alone.
        out = module.loss(x, torch.arange(N) % OUT, torch.arange(N))
    elif isinstance(module, gsl.TableNet):
        out = module(x, torch.arange(N) % OUT)
    else:
        out = module(x)
    if isinstance(out, tuple):
        value = torch.randn(N)[out.edge_index[0]]
        out = (out.edge_weight * value).view(-1)
    numbers(out).square().sum().backward()
    check_gradients(module)


def through_a_file(module, fresh):
    stream = io.BytesIO()
    torch.save(module.state_dict(), stream)
    stream.seek(0)
    fresh.load_state_dict(torch.load(stream, weights_only=True))
    return fresh


def evaluate(module, x):
    torch.manual_seed(2)  # A loss hides features at random in evaluation mode, too.
    return module.eval()(x)


@pytest.mark.parametrize('how', ['deepcopy', 'pickle', 'state_dict'])
@pytest.mark.parametrize('factory', CASES)
def test_copies_are_equal_and_independent(factory, how):
    module = factory()
    x = features(module)
    # A copy of a module that has run: what a forward pass leaves must copy, too.
    out = module(x)
    numbers(out).sum().backward()
    if how == 'deepcopy':
        twin = copy.deepcopy(module)
    elif how == 'pickle':
        twin = pickle.loads(pickle.dumps(module))
    else:
        twin = through_a_file(module, factory())
    expected = evaluate(module, x)
    torch.testing.assert_close(evaluate(twin, x), expected, rtol=0, atol=0)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.fill_(0.3)
    torch.testing.assert_close(evaluate(module, x), expected, rtol=0, atol=0)


# What stands below "Args:", and "name (type, optional): text" in it.
ARGS = re.compile(r'^Args:\n((?: {4}.*\n|\n)+)', re.MULTILINE)
ENTRY = re.compile(r'(\*{0,2}\w+(?:, \w+)*) \((.+?)\):')
# What an entry says that leaves types and defaults to another class.
SHARED = re.compile(r':\s+As in\s+:class:`~?[\w.]*?(\w+)`')
DEFAULT = re.compile(r'\(default:\s+:obj:`([^`]*)`\)')


def documented(doc):
    """Maps the names under "Args:" to whether optional, and to the default.

    Those that are as in another class are looked up there.
    """
    arguments = {}
    entries = ARGS.search(f'{inspect.cleandoc(doc)}\n')[1]
    for entry in re.split(r'^ {4}(?=\S)', entries, flags=re.MULTILINE)[1:]:
        match, default = ENTRY.match(entry), DEFAULT.search(entry)
        assert match is not None, f'no "name (type): text" in {entry!r}'
        names, is_optional = match[1].split(', '), match[2].endswith('optional')
        shared = SHARED.search(entry)
        if shared is not None and default is None and not names[0].startswith('*'):
            inherited = documented(inspect.getdoc(getattr(gsl, shared[1])))
            for name in names:
                assert name in inherited, f'{name!r} is not documented in {shared[1]}'
                assert inherited[name][0] == is_optional, f'{name!r} is optional once'
                arguments[name] = inherited[name]
        else:
            assert len(names) == 1, f'{names} share a description'
            arguments[names[0]] = (is_optional, default and default[1])
    return arguments


def callables():
    """Public classes, functions and methods whose docstring has "Args:"."""
    for module in all_modules():
        for name, value in vars(module).items():
            if getattr(value, '__module__', '') != module.__name__:
                continue
            members = [(name, value)]
            if inspect.isclass(value):
                members += [
                    (f'{name}.{key}', member) for key, member in vars(value).items()
                ]
            for path, member in members:
                doc = getattr(member, '__doc__', None) or ''
                is_public = callable(member) and not re.search(r'(^|\.)_', path)
                if is_public and re.search(r'^\s*Args:$', doc, re.MULTILINE):
                    yield f'{module.__name__}.{path}', member, doc


#: What documented defaults are written with.
NAMES = {'math': math, 'torch': torch, 'Budget': gsl.Budget}


def differences(value, doc):
    errors = []
    entries = documented(doc)
    parameters = inspect.signature(value).parameters
    signature = {
        {'VAR_POSITIONAL': '*', 'VAR_KEYWORD': '**'}.get(parameter.kind.name, '')
        + name: parameter
        for name, parameter in parameters.items()
        if name != 'self'
    }
    if list(entries) != list(signature):
        errors.append(f'{list(entries)} are documented, not {list(signature)}')
    for name, parameter in signature.items():
        optional, default = entries.get(name, (False, None))
        if name.startswith('*'):
            continue
        has_default = parameter.default is not inspect.Parameter.empty
        if optional != has_default or (default is not None) != has_default:
            errors.append(f"'{name}' is optional in one place only")
        elif has_default and eval(default, NAMES) != parameter.default:
            errors.append(f"'{name}' is {parameter.default!r}, not {default}")
    return errors


DOCUMENTED = {path: (value, doc) for path, value, doc in callables()}


def test_every_constructor_is_documented():
    # A class that inherits its constructor takes the arguments of its base.
    names = {n for n in public_modules() if '__init__' in vars(getattr(gsl, n))}
    assert len(names) > 10
    assert names <= {path.split('.')[-1] for path in DOCUMENTED}


@pytest.mark.parametrize('path', DOCUMENTED)
def test_documented_defaults_equal_the_signature(path):
    assert differences(*DOCUMENTED[path]) == []


def test_docstrings_of_functions_open_with_a_verb():
    docs = [
        (f'{path.stem}.{node.name}', ast.get_docstring(node) or '')
        for path in Path(gsl.__file__).parent.rglob('*.py')
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8')))
        if isinstance(node, ast.FunctionDef)
    ]
    assert len(docs) > 300
    nouns = re.compile(r'(The|An?|This|Whether|Number|If|For)\b')
    assert [name for name, doc in docs if nouns.match(doc)] == []


@pytest.mark.parametrize('name', public_modules())
def test_docstring(name):
    doc = inspect.getdoc(getattr(gsl, name)) or ''
    # Similarities share arguments and shapes, which their base documents.
    is_similarity = issubclass(getattr(gsl, name), gsl.Similarity)
    text = doc + (inspect.getdoc(gsl.Similarity) if is_similarity else '')
    for heading in ('Args:', 'Shapes:'):
        assert f'\n{heading}' in text, heading
    for heading in ('Example:\n    >>>', '.. math::'):
        assert f'\n{heading}' in doc, heading
    link = r'<https://(arxiv\.org/abs/\d{4}\.\d{5}|doi\.org/10\.\d{4}/\S+)>`_\s+paper'
    assert re.search(link, doc), 'a link to a paper, followed by the word paper'
    assert '\nwhere ' in doc, 'a line that begins with where'


CLASSES = [name for name in gsl.__all__ if isinstance(getattr(gsl, name), type)]


@pytest.mark.parametrize('name', CLASSES)
def test_a_class_has_the_signature_of_its_constructor(name):
    cls = getattr(gsl, name)
    _, *expected = inspect.signature(cls.__init__).parameters.values()
    if issubclass(cls, tuple | Warning) or inspect.isabstract(cls):
        return  # Made by `__new__`, or not made at all.
    assert list(inspect.signature(cls).parameters.values()) == expected
    assert [p.name for p in expected][:2] != ['args', 'kwargs']
