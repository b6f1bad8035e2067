"""What holds for every layer and network that learns a graph, whatever its form."""

from typing import NamedTuple

import pytest
import torch
from oracles import check_gradients, seeded
from sampling import normal

from torch_geometric_gsl import (
    GSLNet,
    HeteroLatentGraphConv,
    LatentGraphConv,
    SensorGraphConv,
    TransitionGraphConv,
)

N, S, IN, OUT, R = 12, 5, 6, 4, ('row', 'near', 'row')
EDGES = torch.stack([torch.arange(N).repeat(4), torch.arange(4 * N) * 5 % N])
BATCH, Z = torch.arange(N) // 6, normal(N, 3, seed=8)
FREE = {'num_transition_nodes': S, 'transition': 'free'}
ANCHORS = {'num_transition_nodes': S, 'transition': 'anchors'}
PROJECTED = {'num_transition_nodes': S, 'num_nodes': N}


class Typed(torch.nn.Module):
    """Call a module of several types with rows of one."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, edge_index=None, batch=None, z=None, **how):
        def typed(value, key='row'):
            if isinstance(value, tuple):
                return tuple(typed(element, key) for element in value)
            return {key: value}

        kwargs = {'batch_dict': batch, 'z_dict': z}
        kwargs = {name: typed(v) for name, v in kwargs.items() if v is not None}
        if edge_index is not None:
            kwargs['edge_index_dict'] = typed(edge_index, R)
        out = self.inner(typed(x), **kwargs, **how)
        return out['row'] if isinstance(out, dict) else out


class Case(NamedTuple):
    cls: type
    args: tuple
    options: dict
    inputs: dict

    def make(self, in_channels=IN, dtype=torch.double, **options):
        torch.manual_seed(5)
        options = {'k': 3, 'tau': 0.4, **self.options, **options}
        module = self.cls(in_channels, *self.args, **options)
        if options.get('transition') == 'anchors':
            module.choose_anchors(normal(S, IN, seed=9).float())
        with torch.no_grad():
            for name, value in module.named_parameters():
                if in_channels != -1 and name.endswith('bias'):
                    value.normal_()
        is_typed = self.cls is HeteroLatentGraphConv
        return (Typed(module) if is_typed else module).to(dtype)

    def row_wise(self, rows=slice(None), dtype=torch.double):
        """Return what is given of the rows beside them."""
        return {k: v[rows].to(dtype) for k, v in self.inputs.items()}


def cases():
    """Return all cases by their names."""
    by_name = {}

    def add(name, cls, args, inputs=None, **options):
        by_name[name] = Case(cls, args, options, inputs or {})

    add('latent', LatentGraphConv, (OUT,))
    add('latent linear', LatentGraphConv, (OUT, 'linear'), scale=3.0, null_score=0.0)
    add('latent input', LatentGraphConv, (OUT,), z_channels=IN)
    add('latent rows', LatentGraphConv, (OUT,), {'z': Z}, z_channels=3)
    add('projected', TransitionGraphConv, (OUT, N, S))
    add('free', TransitionGraphConv, (OUT,), **FREE)
    add('anchors', TransitionGraphConv, (OUT,), **ANCHORS)
    add('sensors', SensorGraphConv, (OUT,), num_sensors=N)
    add('sensor rows', SensorGraphConv, (OUT,), {'z': Z}, z_channels=3, loop=True)
    add('windows', SensorGraphConv, (OUT,), loop=True)
    add('typed', HeteroLatentGraphConv, (OUT, [R]))
    add('typed rows', HeteroLatentGraphConv, (OUT, [R]), {'z': Z}, z_channels=3)
    net = (8, 2, OUT)
    add('net', GSLNet, net, z_channels=None)
    add('net auto', GSLNet, net, z_channels='auto')
    add('net input', GSLNet, net, z_channels=IN, similarity='linear', train_scale=True)
    add('net rows', GSLNet, net, {'z': Z}, z_channels=3)
    add('net projected', GSLNet, net, **PROJECTED)
    add('net free', GSLNet, net, **FREE)
    add('net anchors', GSLNet, net, **ANCHORS)
    return by_name


CASES = cases()
#: Forms that are not at liberty about their rows.
FIXED = {'projected', 'net projected'}
ALONE = {'free', 'anchors', 'net free', 'net anchors'}
SENSORS = {'sensors', 'sensor rows', 'windows'}
TRAINING = pytest.mark.parametrize('training', [True, False])


def each(without=()):
    return pytest.mark.parametrize('name', [n for n in CASES if n not in without])


@each(SENSORS)
@TRAINING
def test_sparse_features(name, training):
    case, x = CASES[name], normal(N, IN).relu()
    results = []
    for rows in (x, x.to_sparse_csr()):
        module = case.make().train(training)
        out = module(rows, **case.row_wise(), generator=seeded(2))
        out.square().sum().backward()
        results.append([out.detach(), *(p.grad for p in module.parameters())])
    torch.testing.assert_close(*results)


@each()
@TRAINING
def test_gradients_reach_every_parameter(name, training):
    case = CASES[name]
    module = case.make().train(training)
    module(normal(N, IN), **case.row_wise()).square().sum().backward()
    check_gradients(module)


@each({'latent input', 'net input', 'net auto'})
def test_channels_from_the_first_input(name):
    case, x = CASES[name], normal(N, IN).float()
    lazy = case.make(-1, torch.float32).eval()
    kwargs = case.row_wise(dtype=torch.float32)
    expected = lazy(x, **kwargs)
    assert expected.shape == (N, OUT)
    sized = case.make(dtype=torch.float32).eval()
    sized.load_state_dict(lazy.state_dict())
    assert torch.equal(sized(x, **kwargs), expected)
    with pytest.raises(ValueError, match=r"'x\S*' must have 6 channels \(got 3\)"):
        lazy(x[:, :3], **kwargs)
    for layer in lazy.modules():
        if hasattr(layer, 'reset_parameters'):
            layer.reset_parameters()
            break
    assert not torch.allclose(lazy(x, **kwargs), expected)


@each()
@TRAINING
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16, 'autocast'])
def test_dtypes(name, dtype, training):
    case, x = CASES[name], normal(N, IN)
    # Errors of half precision grow with the scale.
    options = {'method': 'dense', 'dropout': 0.0, 'scale': 10.0}
    module = case.make(**options) if 'net' in name else case.make()
    exact = module.train(training)(x, **case.row_wise(), generator=seeded(1))
    low = torch.float32 if dtype == 'autocast' else dtype
    with torch.autocast('cpu', torch.bfloat16, enabled=dtype == 'autocast'):
        kwargs = case.row_wise(dtype=low)
        out = module.to(low)(x.to(low), **kwargs, generator=seeded(1))
    assert dtype == 'autocast' or out.dtype == dtype
    assert bool(out.isfinite().all())
    if training:  # Noise of another precision makes other graphs.
        return
    if dtype == torch.float32:
        torch.testing.assert_close(out.double(), exact, rtol=1e-4, atol=1e-4)
    else:
        error = (out.double() - exact).norm() / exact.norm()
        assert 0 < float(error.detach()) < 0.1


@each()
def test_all_that_is_random_comes_from_the_generator(name):
    case, x = CASES[name], normal(N, IN)
    module = case.make()

    def run(seed, global_seed):
        torch.manual_seed(global_seed)
        state = torch.get_rng_state()
        out = module(x, **case.row_wise(), generator=seeded(seed))
        assert torch.equal(torch.get_rng_state(), state)
        return out

    out = run(1, global_seed=0)
    assert torch.equal(out, run(1, global_seed=3))
    assert not torch.equal(out, run(2, global_seed=0))
    module.eval()
    torch.testing.assert_close(run(1, 0), run(2, 1))


@each({*FIXED, 'sensors'})
def test_permutations(name):
    case, x = CASES[name], normal(N, IN)
    module, order = case.make().eval(), torch.randperm(N, generator=seeded(4))
    expected = module(x, **case.row_wise())[order]
    torch.testing.assert_close(module(x[order], **case.row_wise(order)), expected)


@each({*FIXED, *ALONE, *SENSORS})
@TRAINING
def test_batches_keep_graphs_apart(name, training):
    case, x = CASES[name], normal(N, IN)
    module = case.make(method='dense').train(training)
    graph = module(x, batch=BATCH, **case.row_wise(), return_graph=True)[1]
    seen = []

    def look(graph):
        if isinstance(graph, dict):
            graph = list(graph.values())
        if isinstance(graph, list):
            for element in graph:
                look(element)
            return
        seen.append(graph)
        assert torch.equal(*(BATCH[end] for end in graph.edge_index))

    look(graph)
    assert seen
    if not training:
        halves = [module(x[r], **case.row_wise(r)) for r in (slice(6), slice(6, N))]
        out = module(x, batch=BATCH, **case.row_wise())
        torch.testing.assert_close(out, torch.cat(halves))
    with pytest.raises(ValueError, match=r'must be sorted'):
        module(x, batch=BATCH.flip(0), **case.row_wise())
    with pytest.raises(ValueError, match=r'one entry per node \(got 3 for 12 nodes\)'):
        module(x, batch=BATCH[:3], **case.row_wise())


@each({*ALONE, 'sensors'})
def test_a_pair_of_sources_and_targets(name):
    case, x = CASES[name], normal(N, IN)
    module, rows = case.make(loop=True).eval(), torch.tensor([3, 3, 7])
    expected = module(x, **case.row_wise())[rows]

    def call(rows):
        kwargs = {k: (v, v[rows]) for k, v in case.row_wise().items()}
        return module((x, x[rows]), **kwargs)

    torch.testing.assert_close(call(rows), expected)
    # No row depends on others, and there may be none.
    torch.testing.assert_close(call(rows[2:]), expected[2:])
    assert call(rows[:0]).shape == (0, OUT)
    with pytest.raises(ValueError, match=r'a pair .* \(got 3 tensors\)'):
        module((x, x, x))
    if case.inputs:
        text = "'z(_dict)?' must be a pair( of dicts)? like 'x(_dict)?'"
        with pytest.raises(TypeError, match=text):
            module((x, x[rows]), z=Z)


@each(SENSORS)
def test_new_rows_far_away_move_no_answer(name):
    if name in FIXED:
        return
    case, x = CASES[name], normal(N, IN)
    module, new = case.make().eval(), normal(4, IN, seed=6)

    def call(new):
        if name in ALONE:
            return module(new)
        z = {k: (v, Z[: len(new)]) for k, v in case.row_wise().items()}
        return module((x, new), **z)

    far = torch.cat([new[:1], 99 * new])
    torch.testing.assert_close(call(far)[0], call(new)[0])


@each({*FIXED, *SENSORS})
@TRAINING
def test_no_rows(name, training):
    case = CASES[name]
    module = case.make().train(training)
    out = module(normal(0, IN), **case.row_wise(slice(0)))
    assert out.shape == (0, OUT)
    out.sum().backward()


BAD_ROWS = [
    (lambda x: None, TypeError, r"'x\S*' must be a torch.Tensor \(got NoneType\)"),
    (lambda x: x[:, 1:], ValueError, r"'x\S*' must have 6 channels \(got 5\)"),
    (lambda x: x / 0, ValueError, r"'x\S*' contains NaN or infinite values"),
    (lambda x: x.float(), TypeError, r'has torch.float32 but the parameters'),
    (lambda x: x.long(), TypeError, r"'x\S*' must be floating-point"),
]


@each()
@pytest.mark.parametrize(('change', 'error', 'text'), BAD_ROWS)
def test_rows_that_are_wrong(name, change, error, text):
    case = CASES[name]
    with pytest.raises(error, match=text):
        case.make()(change(normal(N, IN)), **case.row_wise())


@each({*FIXED, *ALONE, *SENSORS})
def test_edges_that_are_wrong(name):
    case, x = CASES[name], normal(N, IN)
    module = case.make()
    for edges, error, text in (
        (EDGES + 5, ValueError, "'edge_index' has sources outside 0..11"),
        (EDGES.float(), TypeError, "'edge_index' must have dtype torch.int64"),
        (EDGES[0], ValueError, "'edge_index' must have shape"),
    ):
        with pytest.raises(error, match=text):
            module(x, edges, **case.row_wise())


@each()
def test_compared_rows_that_are_wrong(name):
    case, x = CASES[name], normal(N, IN)
    module = case.make()
    if case.options.get('z_channels') is None:
        if 'free' in name or name in ('projected', 'anchors'):
            return  # Python refuses them, or a test of networks does.
        text = r"'z(_dict)?' needs a (layer|model|relation) with 'z_channels' \(got No"
        for z in (Z, normal(N, OUT), normal(N, IN)):
            with pytest.raises(ValueError, match=text):
                module(x, z=z)
        return
    if not case.inputs:
        with pytest.raises(ValueError, match=r"'z' must have 6 channels \(got 3\)"):
            module(x, z=Z)
        return
    text = r"'z\w*' is required unless 'x\w*' has z_channels=3 channels \(got 6\)"
    if name == 'sensor rows':
        text = r"'z' must be a t.* \(got NoneType\)"
    with pytest.raises((TypeError, ValueError), match=text):
        module(x)
    for z, error, text in (
        (Z[:2], ValueError, r"'z' must have one row per \w+ \(got 2 for 12"),
        (normal(N, 4), ValueError, r"'z' must have 3 channels \(got 4\)"),
        (Z / 0, ValueError, "'z' contains NaN"),
        (Z.float(), TypeError, "'z' has torch.float32 but the parameters"),
        (Z.long(), TypeError, "'z' must be floating-point"),
        ('rows', TypeError, r"'z' must be a (torch.T|t)ensor.* \(got str\)"),
        ((Z, Z), TypeError, r"'z\w*' must be a (tensor|dict) like 'x"),
    ):
        with pytest.raises(error, match=text):
            module(x, z=z)


@each()
def test_generators_that_are_wrong(name):
    case = CASES[name]
    with pytest.raises(TypeError, match=r"'generator' must be a torch.Generator"):
        case.make()(normal(N, IN), **case.row_wise(), generator=3)
