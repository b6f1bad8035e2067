"""A warning points at the line of the user that caused it."""

import sys
import tempfile
import warnings
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch

import torch_geometric_gsl as gsl
from torch_geometric_gsl import _warnings
from torch_geometric_gsl._warnings import warn_caller

X = torch.randn(1100, 4, generator=torch.Generator().manual_seed(0))
FEW = gsl.Budget(eval_pairs=1)
CHAIN = """
from torch_geometric.nn import Sequential

class Chain(Sequential):
    pass

def make(kind, layers):
    return kind('x', [(layer, 'x -> x') for layer in layers])
"""


def make_sampler():
    return gsl.GumbelKNNSampler.paper(gsl.GaussianSimilarity(4), budget=FEW).eval()


def make_conv():
    return gsl.LatentGraphConv(4, 4, budget=FEW).eval()


def make_graph_module():
    graph = torch.fx.Graph()
    graph.output(graph.call_module('conv', (graph.placeholder('x'),)))
    return torch.fx.GraphModule({'conv': make_conv()}, graph)


@pytest.fixture
def make_chain(tmp_path, monkeypatch):
    """Layers whose `forward` is written by PyG, which imports what calls it."""
    (tmp_path / 'my_chain.py').write_text(CHAIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, 'my_chain', raising=False)

    def make(name):
        module = import_module('my_chain')
        cls = getattr(module, name)
        monkeypatch.setattr(cls, 'forward', cls.forward)  # It is replaced.
        chain = module.make(cls, [make_conv(), make_conv()])
        file = chain.forward.__code__.co_filename
        assert Path(file).parent == Path(tempfile.gettempdir())
        return chain

    return make


def line():
    return sys._getframe(1).f_lineno


MODELS = ['model', 'no_grad', 'graph_module', 'Sequential', 'Chain']
MODELS += [pytest.param('compiled', marks=pytest.mark.slow)]


@pytest.fixture(params=['sampler', *MODELS])
def run(request, make_chain):
    """What warns, through layers of the package, of PyTorch and of PyG."""
    if request.param == 'sampler':
        sampler = make_sampler()
        return lambda: sampler.propagate(X, X)
    model = gsl.GSLNet(4, 4, 2, 2, budget=FEW).eval()
    if request.param == 'no_grad':
        model = torch.no_grad()(model)
    elif request.param == 'compiled':
        model = torch.compile(model, backend='eager')
    elif request.param == 'graph_module':
        model = make_graph_module()
    elif request.param != 'model':
        model = make_chain(request.param)
    return lambda: model(X)


def test_an_estimate_points_at_the_caller(run):
    with pytest.warns(gsl.SampledEvaluationWarning) as seen:
        run()
    assert {warning.filename for warning in seen} == {__file__}
    assert {warning.lineno for warning in seen} == {run.__code__.co_firstlineno}


@pytest.mark.parametrize('way', ['forward', 'propagate'])
@pytest.mark.parametrize('training', [True, False])
def test_a_batch_warns_once_a_call(training, way):
    # One race serves all graphs; streams and estimates are one of each.
    options = {'tau': 9.0, 'method': 'stream'} if training else {'budget': FEW}
    sampler = gsl.GumbelKNNSampler.paper(gsl.GaussianSimilarity(4), **options).train(
        training
    )
    rows = X[:300] if training else X
    x, batch = torch.cat([rows, rows]), torch.arange(2).repeat_interleave(len(rows))
    args = (x, x) if way == 'propagate' else (x,)
    category = gsl.TruncatedRaceWarning if training else gsl.SampledEvaluationWarning
    for _ in range(2):  # A later call tells of it again.
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter('always')
            getattr(sampler, way)(*args, batch=batch)
        categories = [warning.category for warning in seen]
        # PyG imports what warns of itself.
        assert [c for c in categories if c is not DeprecationWarning] == [category]


@pytest.mark.parametrize(
    ('caller', 'layers'), [('sampler', 1), ('graph_module', 1), ('Sequential', 2)]
)
def test_later_lines_are_warned_too(caller, layers, make_chain):
    run = partial(make_sampler().propagate, h=X)
    if caller != 'sampler':
        run = make_chain(caller) if layers > 1 else make_graph_module()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter('default')  # Once for each line, as Python does.
        for _ in range(2):
            first_call = line(), run(X)
        second_call = line(), run(X)
    lines = [first_call[0]] * layers + [second_call[0]] * layers
    assert [warning.lineno for warning in seen] == lines


@pytest.mark.parametrize(
    ('file', 'name', 'is_person'),
    [
        ('<stdin>', '__main__', True),
        ('<string>', '__main__', True),
        ('<doctest readme[0]>', 'readme', True),
        ('run.py', None, True),
        (torch.__file__, 'torch', False),
        ('<eval_with_key>.0', None, False),
        ('/tmp/a.b_Chain_0123ab_x1y2.py', 'a.b_Chain_0123ab', False),
    ],
)
def test_code_of_persons_and_libraries(file, name, is_person):
    names = {'warn': warn_caller} | ({} if name is None else {'__name__': name})
    with pytest.warns(UserWarning, match='^text$') as seen:
        exec(compile("warn('text', UserWarning)", file, 'exec'), names)
    assert seen[0].filename == (file if is_person else __file__)


def test_nobody_outside(monkeypatch):
    # Python shows what is called from nowhere, too.
    monkeypatch.setattr(_warnings, '_is_outside', lambda frame: False)
    with pytest.warns(UserWarning, match='^text$'):
        warn_caller('text', UserWarning)
