"""Several relations of one layer: shares, inputs of each kind, and bad arguments."""

import copy

import pytest
import torch
from multiplex import (
    BATCH,
    EACH,
    EDGES,
    IN,
    OPTIONS,
    OUT,
    TRAINING,
    K,
    N,
    R,
    given,
    make,
)
from oracles import seeded, to_matrix
from sampling import normal
from torch_geometric.data import Data

from torch_geometric_gsl import (
    GumbelKNNSampler,
    LinearSimilarity,
    MultiplexLatentGraphConv,
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.transforms import FreezeLatentGraph


@pytest.mark.parametrize('kind', ['global', 'node'])
@pytest.mark.parametrize('dtype', [torch.float32, torch.double])
def test_shares(kind, dtype):
    x = normal(N, IN, dtype=dtype)
    fresh = MultiplexLatentGraphConv(IN, OUT, R, shares=kind).to(dtype)
    assert torch.allclose(fresh.shares(x), torch.tensor(1 / R, dtype=dtype))
    conv = make(dtype=dtype, shares=kind)
    shares = conv.shares(x)
    assert shares.dtype == conv(x).dtype == dtype
    assert shares.shape == ((R,) if kind == 'global' else (N, R))
    torch.testing.assert_close(shares.sum(dim=-1), torch.ones(shares.shape[:-1]).to(x))
    assert not torch.allclose(shares, fresh.shares(x), atol=1e-2)
    sparse = x.relu().to_sparse_csr()
    torch.testing.assert_close(conv.shares(sparse), conv.shares(x.relu()))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    x = normal(N, IN)
    conv = make(dtype=dtype, shares='node').eval()
    exact = copy.deepcopy(conv).double()(x)
    out = conv(x.to(dtype))
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), exact, rtol=0.1, atol=0.1)
    out.sum().backward()
    assert all(p.grad.isfinite().all() for p in conv.parameters())


@EACH
@TRAINING
def test_sparse_features(name, training):
    x = normal(N, IN).relu()
    options = OPTIONS[name]
    conv = make(**options).train(training)
    args = {'generator': None, **given(name)}
    dense, other = (
        conv(rows, **(args | {'generator': seeded(2)}))
        for rows in (x, x.to_sparse_csr())
    )
    torch.testing.assert_close(other, dense)


def test_batches_and_candidates():
    conv, x = make(shares='node').eval(), normal(N, IN)
    halves = torch.cat([conv(x[:6]), conv(x[6:])])
    torch.testing.assert_close(conv(x, batch=BATCH), halves)
    pairs = {*map(tuple, EDGES.t().tolist())}
    for graph in [*conv.graphs(x, EDGES), conv.graph(x, EDGES)]:
        assert {*map(tuple, graph.edge_index.t().tolist())} <= pairs
    out = conv.train()(x, EDGES, generator=seeded(1))
    graph = to_matrix(*conv.graph(x, EDGES, generator=seeded(1)), N, N)
    h = x @ conv.relations[0].lin.weight.t()
    torch.testing.assert_close(
        out, graph @ h + x @ conv.lin_root.weight.t() + conv.bias
    )


@EACH
def test_new_rows(name):
    conv, x = make(**OPTIONS[name]).eval(), normal(N, IN)
    rows = torch.tensor([3, 3, 7])
    alone, joined = given(name), {}
    if name == 'rows':
        joined['z'] = alone['z'], alone['z'][rows]
    out = conv((x, x[rows]), **joined)
    torch.testing.assert_close(out, conv(x, **alone)[rows])
    mixed = to_matrix(*conv.graph((x, x[rows]), **joined), 3, N)
    expected = to_matrix(*conv.graph(x, **alone), N, N)[rows]
    torch.testing.assert_close(mixed, expected)


@EACH
@pytest.mark.parametrize('is_new', [False, True])
def test_equal_messages_are_projected_once(name, is_new):
    conv, x = make(**OPTIONS[name]), normal(N, IN)
    calls, args = [], given(name)
    for lin in {relation.lin for relation in conv.relations}:
        lin.register_forward_pre_hook(lambda _, rows: calls.append(len(rows[0])))
    if is_new:
        x, args = (x, x[:5]), {key: (z, z[:5]) for key, z in args.items()}
    conv(x, **args)
    times = R if name == 'own messages' else 1
    # What is not compared is not projected, unless it is a message of its own.
    targets = is_new and name not in ('input', 'rows')
    assert sorted(calls) == [5] * (times * targets) + [N] * times


def test_a_given_graph_is_a_prior_of_each_relation():
    conv, x = make(observed='prior'), normal(N, IN)
    assert len([name for name, _ in conv.named_parameters() if 'prior' in name]) == R
    out = conv(x, EDGES, generator=seeded(1))
    graph = to_matrix(*conv.graph(x, EDGES, generator=seeded(1)), N, N)
    h = x @ conv.relations[0].lin.weight.t()
    expected = graph @ h + x @ conv.lin_root.weight.t() + conv.bias
    torch.testing.assert_close(out, expected)
    out.sum().backward()
    assert all(float(relation.prior.logit.grad) != 0 for relation in conv.relations)


def test_lazy_channels():
    conv = MultiplexLatentGraphConv(-1, OUT, R, k=K)
    x = normal(N, IN, dtype=torch.float32)
    assert conv(x).shape == (N, OUT)
    assert {relation.lin.weight.shape for relation in conv.relations} == {(OUT, IN)}
    conv.reset_parameters()
    assert conv(x).shape == (N, OUT)
    with pytest.raises(ValueError, match=r"'x' must have 6 channels \(got 3\)"):
        conv(x[:, :3])


def test_similarities_of_several_kinds():
    given = ['linear', NeuralGaussianSimilarity(OUT)]
    conv = MultiplexLatentGraphConv(IN, OUT, 2, given)
    kinds = [type(relation.sampler.similarity) for relation in conv.relations]
    assert kinds == [LinearSimilarity, NeuralGaussianSimilarity]
    options = [{'b': 0.2}, {'b': 0.8}]
    conv = MultiplexLatentGraphConv(
        IN, OUT, 2, 'gaussian', z_channels=-1, similarity_kwargs=options
    )
    assert [r.sampler.similarity.b for r in conv.relations] == [0.2, 0.8]
    weights = MultiplexLatentGraphConv(
        IN, OUT, 2, 'linear', similarity_kwargs={'feature_weights': True}
    )
    first, second = (r.sampler.similarity.feature_weight for r in weights.relations)
    assert not torch.equal(first, second)
    assert torch.allclose(first, torch.ones(OUT), atol=0.5)


def test_state_and_reset():
    conv, x = make(shares='node', null_score=0.0).eval(), normal(N, IN)
    torch.manual_seed(9)
    other = MultiplexLatentGraphConv(
        IN, OUT, R, k=K, tau=0.4, scale=1.5, shares='node', null_score=0.0
    ).double()
    other.load_state_dict(conv.state_dict())
    assert torch.equal(other.eval()(x), conv(x))
    conv.reset_parameters()
    assert torch.equal(conv.shares(x), torch.full_like(conv.shares(x), 1 / R))
    assert all(r.sampler.null_score.item() == 0 for r in conv.relations)


def test_the_graph_of_a_relation_can_be_stored():
    conv, x = make(dtype=torch.float32), normal(N, IN, dtype=torch.float32)
    data = FreezeLatentGraph(conv, layer=1)(Data(x=x))
    expected = conv.eval().graphs(x)[1]
    assert torch.equal(data.edge_index, expected.edge_index)
    torch.testing.assert_close(data.edge_weight, expected.edge_weight)


def test_an_exported_program():
    conv = make(dtype=torch.float32, shares='node').eval()
    x = normal(N, IN, dtype=torch.float32)
    run = torch.export.export(conv, (x,)).module()
    torch.testing.assert_close(run(x), conv(x))


def test_samplers_are_independent():
    conv = make(train_scale=True, null_score=0.0)
    samplers = [m for m in conv.modules() if isinstance(m, GumbelKNNSampler)]
    assert len({id(sampler.log_scale) for sampler in samplers}) == R
    assert len({id(sampler.null_score) for sampler in samplers}) == R


def test_no_rows():
    conv, x = make().eval(), normal(N, IN)
    assert conv((x, x[:0])).shape == (0, OUT)
    assert conv.graph((x, x[:0])).edge_index.shape == (2, 0)


@pytest.mark.parametrize(
    ('error', 'args', 'kwargs', 'match'),
    [
        (ValueError, (0,), {}, r"'num_relations' must be at least 1 \(got 0\)"),
        (TypeError, (2.0,), {}, r"'num_relations' must be an integer \(got float\)"),
        (ValueError, (2,), {'shares': 'edge'}, r"'shares' must be one of .*'edge'"),
        (TypeError, (2,), {'same_messages': 1}, "'same_messages' must be a bool"),
        (TypeError, (2,), {'root_weight': 1}, "'root_weight' must be a bool"),
        (TypeError, (2,), {'heads': 2}, "has no option 'heads'"),
        (ValueError, (2, 'bell'), {}, r"'similarity' must be one of .* 'bell'"),
        (ValueError, (3, ['linear'] * 2), {}, r"'similarity' .* \(got 2 for 3 relat"),
        (
            ValueError,
            (2,),
            {'similarity_kwargs': [{}]},
            r"'similarity_kwargs' must have one entry per relation \(got 1 for 2",
        ),
        (ValueError, (2, 'linear'), {}, "'similarity' must tell relations apart"),
        (
            ValueError,
            (2, 'gaussian'),
            {'same_messages': False, 'z_channels': -1},
            r"apart: .*'similarity_kwargs' \(got \['GaussianSimilarity\(6, b=0.5",
        ),
        (ValueError, (2,), {'z_channels': 0}, r"'z_channels' must be at least 1 \(got"),
    ],
)
def test_bad_arguments(error, args, kwargs, match):
    with pytest.raises(error, match=match):
        MultiplexLatentGraphConv(IN, OUT, *args, **kwargs)


def test_bad_sizes_and_input():
    with pytest.raises(ValueError, match=r"'out_channels' must be at least 1 \(got 0"):
        MultiplexLatentGraphConv(IN, 0, 2)
    with pytest.raises(TypeError, match=r"'in_channels' must be an integer \(got tup"):
        MultiplexLatentGraphConv((IN, IN), OUT, 2)
    text = r"'in_channels' must be known with shares='node' \(got -1\)"
    with pytest.raises(ValueError, match=text):
        MultiplexLatentGraphConv(-1, OUT, 2, shares='node')
    # Equal similarities of projections that differ are no mistake.
    MultiplexLatentGraphConv(IN, OUT, 2, 'linear', same_messages=False)
    conv, x = make(), normal(N, IN)
    with pytest.raises(ValueError, match=r"'x' must have 6 channels \(got 5\)"):
        conv(x[:, 1:])
    with pytest.raises(TypeError, match=r"'x' has torch.float32 but the parameters"):
        conv(x.float())
    with pytest.raises(ValueError, match=r"'z' must have 4 channels \(got 6\)"):
        conv(x, z=x)
    with pytest.raises(TypeError, match=r"'z' must be a pair like 'x' \(got a Tensor"):
        conv((x, x), z=x[:, :OUT])
    node = make(shares='node')
    with pytest.raises(TypeError, match=r"'x' must be a torch.Tensor \(got NoneType"):
        node.shares()
    with pytest.raises(ValueError, match=r"'x' must have 6 channels \(got 5\)"):
        node.shares(x[:, 1:])


def test_repr():
    assert str(MultiplexLatentGraphConv(16, 32, 2)) == (
        'MultiplexLatentGraphConv(16, 32, num_relations=2, '
        'similarity=NeuralGaussianSimilarity(32, c_scale=0.1), k=5, tau=0.25)'
    )
    conv = MultiplexLatentGraphConv(
        6, 4, 2, ['linear', 'difference'], k=2, shares='node', same_messages=False
    )
    assert str(conv) == (
        'MultiplexLatentGraphConv(6, 4, num_relations=2, similarity=['
        'LinearSimilarity(4), DifferenceSimilarity(4)], k=2, tau=0.25, '
        "shares='node', same_messages=False)"
    )
