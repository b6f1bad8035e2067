"""The choice of a model's scale on validation nodes."""

import copy
import math
import re

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl import GSLNet, GumbelKNNSampler

X, Y = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40)


def make(**kwargs):
    options = {'num_layers': 2, 'out_channels': 2, 'scale': 'auto', **kwargs}
    return GSLNet(4, 8, **options)


def scales_of(model):
    samplers = [m for m in model.modules() if isinstance(m, GumbelKNNSampler)]
    return [sampler.scale for sampler in samplers]


def scored(scores, seen=None):
    """Train one step, and return the score of the scale that the model has."""

    def train(model):
        scale = scales_of(model)[0]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if seen is not None:
            state = model.state_dict()
            seen.append((scale, copy.deepcopy(state), torch.rand(3)))
        model.train().loss(X, Y % 2, torch.arange(20)).backward()
        optimizer.step()
        return scores[scale]

    return train


@pytest.mark.parametrize(
    'options',
    [
        {},
        {'num_transition_nodes': 7, 'num_nodes': 40},
        {'z_channels': -1, 'null_score': 0.0},
    ],
    ids=['full', 'transition', 'input'],
)
def test_the_best_training_stays(options):
    model = make(**options)
    assert set(scales_of(model)) == {1.0}
    seen = []
    found = model.choose_scale(
        scored({1.0: 0.5, 3.0: 0.9, 30.0: 0.7}, seen), scales=[30, 3, 1.0, 3]
    )
    assert found == {1.0: 0.5, 3.0: 0.9, 30.0: 0.7}
    assert [scale for scale, _, _ in seen] == [1.0, 3.0, 30.0]
    assert set(scales_of(model)) == {3.0}
    assert "scale='auto' (3)" in repr(model)
    # All begin with the same parameters and random numbers.
    for _, state, random in seen[1:]:
        assert torch.equal(random, seen[0][2])
        for name, value in state.items():
            if name != 'chosen_scale':
                assert torch.equal(value, seen[0][1][name])
    # Those of the best are as its training left them.
    begun = seen[1][1]
    assert any(
        not torch.equal(value, begun[name])
        for name, value in model.state_dict().items()
    )
    model.eval()
    out = model(X)
    twin = make(**options).eval()
    twin.load_state_dict(model.state_dict())
    assert set(scales_of(twin)) == {3.0}
    assert torch.equal(twin(X), out)
    assert torch.equal(copy.deepcopy(model)(X), out)


def test_of_equal_scores_the_smallest_scale_wins_and_nan_is_none():
    model = make()
    model.choose_scale(
        scored({1.0: math.nan, 2.0: 0.5, 4.0: 0.5, 8.0: math.nan}), [*(8, 4, 2, 1)]
    )
    assert scales_of(model) == [2.0, 2.0]
    with pytest.raises(ValueError, match=r"'train' must return a score .*\{1.0: nan"):
        model.choose_scale(scored({1.0: math.nan}), [1])


@pytest.mark.parametrize('scales', [[1], [1, 2], [2, 1, 4]])
def test_the_global_generator_is_left_as_it_was(scales):
    torch.manual_seed(0)
    model = make()
    before, seen = torch.get_rng_state(), []
    for _ in range(2):
        model.choose_scale(scored({1.0: 1.0, 2.0: 0.0, 4.0: 0.0}, seen), scales)
        assert torch.equal(torch.get_rng_state(), before)
    # A second call finds the same.
    assert all(torch.equal(random, seen[0][2]) for _, _, random in seen)
    with pytest.raises(ZeroDivisionError):
        model.choose_scale(lambda model: torch.rand(2).sum() / 0 and 1 / 0, scales)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_in_place_of_the_global_one():
    def choose(generator, global_seed):
        """Parameters and losses of all trainings."""
        found = []

        def train(model):
            found.extend(p.detach().clone() for p in model.parameters())
            loss = model.train().loss(X, Y % 2, generator=generator)
            loss.backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
            found.append(loss.detach())
            return 0.0

        model = make()
        torch.manual_seed(global_seed)
        before = torch.get_rng_state(), generator.get_state()
        model.choose_scale(train, [1, 1.5], generator=generator)
        after = torch.get_rng_state(), generator.get_state()
        assert all(map(torch.equal, before, after))
        return found

    found = choose(seeded(1), global_seed=3)
    half = len(found) // 2
    assert all(map(torch.equal, found[: half - 1], found[half:-1]))
    assert all(map(torch.equal, found, choose(seeded(1), global_seed=4)))
    assert not all(map(torch.equal, found, choose(seeded(2), global_seed=3)))
    with pytest.raises(TypeError, match=r"'generator' must be a torch\.Generator"):
        make().choose_scale(len, [1], generator=3)


def test_the_scale_is_kept_exactly():
    model = make()
    model.choose_scale(scored({0.1: 1.0}), [0.1])
    assert scales_of(model) == [0.1, 0.1]


def test_a_fixed_scale_has_no_state():
    model = make(scale=3.0)
    assert scales_of(model) == [3.0, 3.0]
    assert 'chosen_scale' not in model.state_dict()
    assert 'scale' not in repr(model)
    with pytest.raises(ValueError, match=r"'scale' must be 'auto' .*\(got 3.0\)"):
        model.choose_scale(scored({}))


@pytest.mark.parametrize(
    ('train', 'scales', 'kind', 'message'),
    [
        (3, [1], TypeError, "'train' must be callable (got int)"),
        (len, 3, TypeError, "'scales' must be several numbers (got int)"),
        (len, 'auto', TypeError, "'scales' must be several numbers (got str)"),
        (len, ['learned'], TypeError, "'scales' must hold numbers (got 'learned')"),
        (len, [], ValueError, "'scales' must hold a number (got none)"),
        (len, [1, -2.0], ValueError, "'scales' must be"),
        (len, [math.nan], ValueError, "'scales' must be"),
    ],
)
def test_bad_input(train, scales, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        make().choose_scale(train, scales)


def test_unknown_scale():
    with pytest.raises((TypeError, ValueError), match="'scale' must be"):
        make(scale='Auto')
