import pytest
import torch
from oracles import seeded, to_matrix
from sampling import make, normal

from torch_geometric_gsl import Budget
from torch_geometric_gsl.nn.sampler import plan as planning

N, CHANNELS = 8, 5
BATCH = torch.tensor([0, 0, 0, 2, 2, 2, 2, 2])
# Targets 0 and 5 have no candidates; one pair is given twice.
GIVEN = torch.tensor([[4, 1, 2, 2, 3, 7, 5, 4], [4, 2, 2, 1, 3, 6, 7, 4]])
CASES = {'all': {}, 'batch': {'batch': BATCH}, 'given': {'edge_index': GIVEN}}


def served(*methods):
    """List the methods and the forms of candidates that they serve."""
    pairs = [(method, case) for method in methods for case in CASES]
    return [pair for pair in pairs if pair != ('stream', 'given')]


def assert_equal(leaves, *sums):
    """Check that sums and their gradients are equal."""
    found = [
        [each, *torch.autograd.grad(each.square().sum(), leaves, retain_graph=True)]
        for each in sums
    ]
    torch.testing.assert_close(*found)


def assert_sum_of_graph(sampler, x, h, leaves, **given):
    """Check sums and gradients against those over the graph of the same seed."""
    leaves = [leaf.requires_grad_() for leaf in (h, *leaves)]
    (source, target), weight = sampler(x, **given, generator=seeded(1))
    num_targets = len(x[1]) if isinstance(x, tuple) else len(x)
    dense = to_matrix(torch.stack([source, target]), weight, num_targets, len(h))
    out = sampler.propagate(x, h, **given, generator=seeded(1))
    assert_equal(leaves, out, dense @ h)


@pytest.mark.parametrize(
    'options', [{'tail': 0}, {'tail': 10}, {'tau': 0.75}, {'replace': False}]
)
@pytest.mark.parametrize(('method', 'form'), served('race', 'stream'))
def test_truncated_races(method, options, form):
    count = 330
    x, h = normal(count, 6), normal(count, CHANNELS, seed=4)
    given = {}
    if form == 'batch':
        given['batch'] = torch.zeros(count, dtype=torch.long)
    elif form == 'given':
        every = torch.arange(count)
        given['edge_index'] = torch.cartesian_prod(every, every).t()
    options = {'loop': False, **options}
    tail = options.pop('tail', None)
    for memory in (2**25, 1 if form == 'all' else 2**16):
        budget = Budget(tail=tail, memory=memory)
        sampler = make(method=method, budget=budget, **options)
        assert sampler.plan(x, **given).method == method
        assert_sum_of_graph(sampler, x, h, [x], **given)


def test_evaluation_is_exact_where_a_sample_would_hold_all():
    # Fewer pairs are allowed than there are, but warnings are errors here.
    sampler = make(budget=Budget(eval_pairs=1000), tau=0.5).eval()
    x, h = normal(500, 6), normal(500, CHANNELS, seed=4)
    out = sampler.propagate(x, h).detach()
    weight = torch.softmax(sampler.similarity(x).detach() / 0.5, dim=1)
    torch.testing.assert_close(out, weight @ h)


@pytest.mark.parametrize('is_pair', [True, False])
@pytest.mark.parametrize('training', [True, False])
def test_graphs_of_a_batch_that_are_served_in_different_ways(
    training, is_pair, monkeypatch
):
    # Many pairs are a stream, few are listed; the middle one has no node.
    monkeypatch.setattr(planning, 'SMALL', 30)
    targets = torch.tensor([4, 9, 0, 8, 5])
    sources = torch.tensor([5, 7, 0, 9, 3]) if is_pair else targets
    ids = [torch.arange(5).repeat_interleave(count) for count in (sources, targets)]
    x = [normal(len(own), 6, seed=len(own)) for own in ids]
    h, leaves = normal(len(x[0]), CHANNELS), x if is_pair else x[:1]
    # A scale of its own: what is chosen for equal options is kept.
    sampler = make(tau=0.5, scale=1.01).train(training)
    args = (tuple(x), tuple(ids)) if is_pair else (x[0], ids[0])
    if training:
        assert_sum_of_graph(sampler, args[0], h, leaves, batch=args[1])
        return
    leaves = [leaf.requires_grad_() for leaf in (h, *leaves)]
    score = 1.01 * sampler.similarity(args[0]) / 0.5
    is_other = ids[1].unsqueeze(1) != ids[0]
    dense = score.masked_fill(is_other, -torch.inf).softmax(dim=1)
    assert_equal(leaves, sampler.propagate(args[0], h, batch=args[1]), dense @ h)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_nothing_to_sum(method, training):
    sampler = make(method=method).train(training)
    out = sampler.propagate(normal(0, 6), normal(0, CHANNELS))
    assert out.shape == (0, CHANNELS)
    if method == 'dense' or not training:
        none = torch.empty(2, 0, dtype=torch.long)
        out = sampler.propagate(normal(N, 6), normal(N, CHANNELS), none)
        assert torch.equal(out, torch.zeros(N, CHANNELS).double())


@pytest.mark.parametrize(
    ('error', 'h', 'match'),
    [
        (TypeError, None, r"'h' must be a torch.Tensor \(got NoneType\)"),
        (ValueError, normal(3, 2), r"'h' must have shape \[8, channels\] \(got \[3, 2"),
    ],
)
@pytest.mark.parametrize('training', [True, False])
def test_bad_messages(error, h, match, training):
    with pytest.raises(error, match=match):
        make().train(training).propagate(normal(N, 6), h)
