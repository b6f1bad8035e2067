"""Anchors alone; equations and all that is shared are in ``test_idgl.py``."""

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl.baselines import IDGL, IDGLAnchor

N, IN, HIDDEN, OUT = 40, 6, 5, 3


def features(num_nodes=N):
    return torch.randn(num_nodes, IN, generator=seeded(3), dtype=torch.double)


def make(**kwargs):
    torch.manual_seed(5)
    options = {'k': 3, 'num_anchors': 12, 'dropout': 0.0, 'max_iterations': 2, **kwargs}
    return IDGLAnchor(IN, HIDDEN, 2, OUT, **options).double()


def anchors(model, num_nodes=N, **kwargs):
    """The sources of the first graph."""
    source = model.graphs(features(num_nodes), **kwargs)[0].edge_index[0]
    return source.unique().tolist()


def test_training_draws_anchors():
    model = make()
    drawn = [anchors(model, generator=seeded(seed)) for seed in range(100)]
    assert all(len(draw) == 12 for draw in drawn)
    count = torch.bincount(torch.tensor(drawn).flatten(), minlength=N)
    # Binomial: mean 30, standard deviation 4.6.
    assert int(count.min()) > 8
    assert int(count.max()) < 52
    assert anchors(model, generator=seeded(7)) == drawn[7]
    torch.manual_seed(7)
    first = model(features())
    second = model(features())
    torch.manual_seed(7)
    assert torch.equal(model(features()), first)
    assert not torch.equal(first, second)
    # All graphs of one iteration have the same anchors.
    for graph in model.graphs(features(), generator=seeded(7)):
        assert graph.edge_index[0].unique().tolist() == drawn[7]


def test_evaluation_does_not_draw():
    model, x = make().eval(), features()
    expected, state = model(x), torch.get_rng_state()
    assert torch.equal(model(x), expected)
    assert torch.equal(model(x, generator=seeded(1)), expected)
    assert torch.equal(torch.get_rng_state(), state)
    model.train()
    model(x)
    assert torch.equal(model.eval()(x), expected)
    assert len(anchors(model)) == 12
    # Other nodes have other anchors, other models as well.
    assert max(anchors(model, num_nodes=100)) >= N
    before = anchors(model)
    model.reset_parameters()
    assert anchors(model) != before


def test_anchors_are_part_of_the_state():
    model, x = make().eval(), features()
    other = make().eval()
    other.reset_parameters()
    assert anchors(other) != anchors(model)
    other.load_state_dict(model.state_dict())
    assert anchors(other) == anchors(model)
    assert torch.equal(other(x), model(x))


def test_kept_anchors():
    model, x = make().eval(), features()
    expected, every = model(x), set(anchors(model))
    found = [every]
    for kept in (9, 4, 1):
        model.keep_anchors(kept)
        found.append(set(anchors(model)))
        assert len(found[-1]) == kept
        assert found[-1] < found[-2]
        assert not torch.allclose(model(x), expected)
    assert len(anchors(model.train())) == 12  # Training takes all of them.
    model.eval().keep_anchors(12)
    assert torch.equal(model(x), expected)


def test_randomly_kept_anchors():
    model = make().eval()
    every = set(anchors(model))
    choices = []
    for seed in range(100):
        model.keep_anchors(7, seed=seed)
        choices.append(set(anchors(model)))
        assert len(choices[-1]) == 7
        assert choices[-1] < every
        model.keep_anchors(4, seed=seed)
        assert set(anchors(model)) < choices[-1]
    # Each anchor is kept as often as any other. Binomial: mean 58, standard deviation
    # 4.9; one of twelve is beyond five of them with a probability of 1e-5.
    counts = [sum(anchor in kept for kept in choices) for anchor in every]
    assert min(counts) > 58 - 5 * 4.9
    assert max(counts) < 58 + 5 * 4.9
    # Of fewer nodes than anchors as many are kept as asked for.
    model = make(num_anchors=500).eval()
    model.keep_anchors(30, seed=0)
    assert len(anchors(model)) == 30
    with pytest.raises(ValueError, match=r"'seed' must be at least 0 \(got -1\)"):
        model.keep_anchors(30, seed=-1)


@pytest.mark.parametrize(
    ('error', 'value', 'match'),
    [
        (ValueError, 0, r"'num_kept' must be at least 1 \(got 0\)"),
        (ValueError, 13, r"'num_kept' must be at most 12 \(got 13\)"),
        (TypeError, 1.5, "'num_kept' must be an integer"),
    ],
)
def test_wrong_numbers_of_anchors(error, value, match):
    with pytest.raises(error, match=match):
        make().keep_anchors(value)
    with pytest.raises(ValueError, match=r"'num_anchors' must be at least 1 \(got 0"):
        make(num_anchors=0)


def test_more_anchors_than_nodes():
    x = features()
    every, more = make(num_anchors=N), make(num_anchors=500)
    assert anchors(more) == list(range(N))
    torch.testing.assert_close(more(x), every(x))
    # The first learned graph is then that of the full model.
    full = IDGL(IN, HIDDEN, 2, OUT, k=3, dropout=0.0).double()
    full.load_state_dict(every.state_dict(), strict=False)
    expected, found = full.graphs(x)[0], every.graphs(x)[0]
    assert torch.equal(found.edge_index, expected.edge_index)
    torch.testing.assert_close(found.edge_weight, expected.edge_weight)


def test_graphs_without_anchors():
    model, x = make(num_anchors=1).eval(), features()
    (anchor,) = anchors(model)
    batch = (torch.arange(N) >= 20).long()
    alone = batch != batch[anchor]
    (first, *_) = model.graphs(x, batch=batch)
    assert not bool(alone[first.edge_index[1]].any())
    out = model(x, batch=batch)
    model.keep_anchors(1)
    # They hear of the graph to start from alone, whatever is learned elsewhere.
    torch.nn.init.normal_(model.metrics[0].weight)
    changed = model(x, batch=batch)
    torch.testing.assert_close(changed[alone], out[alone])
    assert not torch.allclose(changed[~alone], out[~alone])
