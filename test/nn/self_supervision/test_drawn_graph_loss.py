"""What both losses of self-supervision have in common."""

import copy

import pytest
import torch
from drawn import (
    BATCH,
    CALLS,
    EDGES,
    HIDDEN,
    IN,
    N,
    embeddings,
    make_sampler,
    matrix,
    words,
)
from oracles import check_gradients, seeded

from torch_geometric_gsl import (
    GraphContrast,
    GraphDenoising,
    GSLNet,
    GumbelKNNSampler,
    LatentGraphConv,
    LinearSimilarity,
)

SMALL = {'embedding_channels': 4, 'projected_channels': 3}
KINDS = {
    'denoising': lambda *args, **kw: GraphDenoising(*args, mask_ratio=2.0, **kw),
    'words': lambda *args, **kw: GraphDenoising(*args, binary=True, **kw),
    'contrast': lambda *args, **kw: GraphContrast(*args, mask_rate=0.3, **SMALL, **kw),
}
EACH = pytest.mark.parametrize('kind', KINDS)


def make(kind, sampler=None, **kwargs):
    sampler = make_sampler() if sampler is None else sampler
    return KINDS[kind](sampler, IN, HIDDEN, **kwargs).double()


@EACH
@pytest.mark.parametrize('call', CALLS)
def test_an_encoder_learns(kind, call):
    module = make(kind, dropout=0.0)
    encoder = torch.nn.Linear(IN, 4).double()
    x = words()
    loss = module(x, embedding=encoder(x), **CALLS[call], generator=seeded())
    assert loss.shape == ()
    loss.backward()
    check_gradients(module.sampler, encoder)


@EACH
def test_the_sampler_is_that_of_the_user(kind):
    sampler = make_sampler()
    before = copy.deepcopy(sampler.state_dict())
    module = make(kind, sampler)
    assert module.sampler is sampler
    for name, value in sampler.state_dict().items():
        assert torch.equal(value, before[name])
    module.reset_parameters()
    assert float(sampler.factor.detach()) == pytest.approx(3.0)
    assert not torch.equal(sampler.similarity.w_b, before['similarity.w_b'])
    # It serves a layer and a network afterwards.
    options = {'z_channels': 4}
    x, z = words(), embeddings()
    for model in (
        LatentGraphConv(IN, 5, **options).double(),
        GSLNet(IN, 8, 2, 5, **options).double(),
    ):
        for conv in getattr(model, 'convs', [model]):
            conv.sampler = sampler
        graph = module.eval().graph(x, embedding=z)
        own = getattr(model, 'convs', [model])[0].eval().graph(x, embedding=z)
        torch.testing.assert_close(tuple(own), tuple(graph))
        assert model(x, embedding=z).shape == (N, 5)


@EACH
def test_the_graph_is_drawn_once(kind):
    module, calls = make(kind), []
    module.sampler.register_draw_hook(lambda *args: calls.append(args))
    module(words(), embedding=embeddings())
    assert len(calls) == 1


@EACH
def test_noise_free_in_evaluation(kind):
    module, x, z = make(kind).eval(), words(), embeddings()
    graphs = [module.graph(x, EDGES, batch=BATCH, embedding=z) for _ in range(2)]
    torch.testing.assert_close(*map(tuple, graphs), rtol=0, atol=0)
    torch.testing.assert_close(matrix(graphs[0]).sum(dim=1), torch.ones(N).double())
    torch.manual_seed(1)
    first = module(x, embedding=z, generator=seeded())
    assert torch.equal(first, module(x, embedding=z, generator=seeded()))


@EACH
@pytest.mark.parametrize('method', ['dense', 'race', 'stream'])
def test_a_generator_and_the_global_one(kind, method):
    x, z, losses = words(), embeddings(), []
    fresh = make(kind, make_sampler(method=method), dropout=0.0, adjacency_dropout=0.3)
    for seed in (1, 1, 2):
        module = copy.deepcopy(fresh)  # An anchor moves, and envelopes are kept.
        state = torch.get_rng_state()
        losses.append(module(x, embedding=z, generator=seeded(seed)).detach())
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(losses[0], losses[1])
    assert not torch.equal(losses[0], losses[2])
    losses.clear()
    for seed in (1, 1):
        torch.manual_seed(seed)
        losses.append(copy.deepcopy(fresh)(x, embedding=z).detach())
    assert torch.equal(*losses)


@EACH
def test_state_dict(kind):
    module, x, z = make(kind), words(), embeddings()
    module(x, embedding=z)
    other = make(kind, make_sampler(scale=9.0))
    other.load_state_dict(copy.deepcopy(module.state_dict()))
    losses = [m.eval()(x, embedding=z, generator=seeded()) for m in (module, other)]
    assert torch.equal(*losses)
    with torch.no_grad():
        other.network.first.bias.add_(1)
    assert torch.equal(module(x, embedding=z, generator=seeded()), losses[0])


@EACH
@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('layout', ['dense', 'sparse'])
def test_half_precision(kind, training, layout):
    # Features of full precision under autocast, and all of half precision.
    exact = make(kind, dropout=0.0).float().train(training)
    x, z = words(dtype=torch.float), embeddings().float()
    twins = copy.deepcopy(exact), copy.deepcopy(exact).bfloat16()
    expected = float(exact(x, embedding=z, generator=seeded()).detach())
    for module, dtype in zip(twins, (torch.float, torch.bfloat16), strict=True):
        given = x.to(dtype) if layout == 'dense' else x.to(dtype).to_sparse_csr()
        compared = z.detach().to(dtype).requires_grad_()
        is_cast = dtype == torch.float
        with torch.autocast('cpu', dtype=torch.bfloat16, enabled=is_cast):
            loss = module(given, embedding=compared, generator=seeded())
        loss.backward()
        assert float(loss.detach()) == pytest.approx(expected, rel=0.02)
        assert bool(compared.grad.isfinite().all() & compared.grad.any())
        check_gradients(module.sampler)


@EACH
@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('layout', ['dense', 'sparse'])
def test_no_nodes(kind, training, layout):
    module, x = make(kind).train(training), words()[:0]
    x = x if layout == 'dense' else x.to_sparse_csr()
    loss = module(x, embedding=embeddings()[:0])
    assert float(loss.detach()) == 0
    loss.backward()


@EACH
def test_inputs(kind):
    module, x, z = make(kind), words(), embeddings()
    cases = [
        ((x[:, :4],), {}, ValueError, r"'x' must have 6 channels \(got 4\)"),
        ((x.float(),), {}, TypeError, r"'x' has torch\.float32 but the parameters"),
        ((x.long(),), {}, TypeError, r"'x' must be floating-point \(got torch\.int64"),
        ((x.tolist(),), {}, TypeError, r"'x' must be a torch\.Tensor \(got list\)"),
        ((x,), {}, ValueError, r"'x' must have 4 channels \(got 6\)"),
        ((x,), {'embedding': x}, ValueError, r"'embedding' must have 4 channels \(go"),
        ((x,), {'embedding': z[:5]}, ValueError, r"'embedding' .* \(got 5 for 12 nod"),
        ((x,), {'embedding': z.float()}, TypeError, "'embedding' has torch.float32"),
        ((x, EDGES + 5), {'embedding': z}, ValueError, r"'edge_index' has .*outside"),
        (
            (x, None, None, BATCH[:3]),
            {'embedding': z},
            ValueError,
            "'batch' must have one",
        ),
        ((x,), {'embedding': z, 'generator': 3}, TypeError, "'generator' must be a"),
    ]
    for args, kwargs, error, text in cases:
        with pytest.raises(error, match=text):
            module(*args, **kwargs)
    x[3, 2] = torch.nan
    with pytest.raises(ValueError, match=r"'x' contains NaN .* \(got 1 of 72\)"):
        module(x, embedding=z)


@EACH
def test_arguments(kind):
    sampler = GumbelKNNSampler(LinearSimilarity(IN))
    build = KINDS[kind]
    with pytest.raises(TypeError, match=r"'sampler' must be a .* \(got LinearSimil"):
        build(sampler.similarity, IN)
    with pytest.raises(ValueError, match=r"'in_channels' must be at least 1 \(got -1"):
        build(sampler, -1)
    with pytest.raises(TypeError, match=r"'hidden_channels' must be an integer \(got"):
        build(sampler, IN, 2.5)
    with pytest.raises(ValueError, match=r"'dropout' must lie in \[0, 1\) \(got 2\)"):
        build(sampler, IN, dropout=2)


@EACH
def test_all_that_is_random_comes_from_the_generator(kind):
    groups = {'contrast_batch_size': 5, 'tau': 0.5} if kind == 'contrast' else {}
    module, x = make(kind, adjacency_dropout=0.3, **groups), words()

    def losses(seed, global_seed):
        torch.manual_seed(global_seed)
        state, generator = torch.get_rng_state(), seeded(seed)
        module.network.train()
        own = copy.deepcopy(module)
        given = {'embedding': embeddings(), 'generator': generator}
        found = torch.stack([own(x, **given) for _ in range(2)])
        assert torch.equal(torch.get_rng_state(), state)
        return found

    first = losses(1, global_seed=0)
    assert torch.equal(first, losses(1, global_seed=3))
    assert not torch.equal(first, losses(2, global_seed=0))
