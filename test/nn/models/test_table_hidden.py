"""Blocks, groups, order and the null neighbour of a table net, by their definition."""

import pytest
import torch
from oracles import seeded
from table_nets import after_the_sum, draw_rows, make

from torch_geometric_gsl.nn.models.table_net import TableNet
from torch_geometric_gsl.ops.aggregate import weighted_sum

N = 30
#: Sorted blocks; groups within them and across; times with ties, and a first one.
BATCH = torch.arange(N) // 11
GROUP = torch.arange(N) * 7 % 5
ORDER = torch.arange(N) * 11 % 9
SEEN = {
    'batch': {'batch': BATCH},
    'group': {'group': GROUP},
    'order': {'order': ORDER},
    'all': {'batch': BATCH, 'group': GROUP, 'order': ORDER},
    'null': {},
}


def is_seen(i, j, batch=None, group=None, order=None):
    return (
        i != j
        and (batch is None or batch[i] == batch[j])
        and (group is None or group[i] != group[j])
        and (order is None or order[i] > order[j])
    )


def definition(net, x_src, x_dst, y, sees, k=10**6):
    """The output of each target, from the exponentials of its scores."""
    h_src, h_dst = net.encoder(x_src), net.encoder(x_dst)
    z_src, z_dst = (net.lin_key(net.norm(h)) for h in (h_src, h_dst))
    message = net.lin_value(h_src) + net.label(y)
    scale, null = net.neighbours.sampler.log_scale.exp(), None
    if net.neighbours.sampler.null_score is not None:
        null = net.neighbours.sampler.null_score.exp()
    hidden = []
    for i in range(len(x_dst)):
        sources = [j for j in range(len(x_src)) if sees(i, j)]
        apart = {j: (z_dst[i] - z_src[j]).square().sum() for j in sources}
        sources = sorted(sources, key=lambda j: apart[j].item())[:k]
        total = h_dst[i]
        if sources:
            weight = torch.stack([(-scale * apart[j]).exp() for j in sources])
            every = weight.sum() if null is None else weight.sum() + null
            total = total + weight @ message[sources] / every
        hidden.append(total)
    return after_the_sum(net, torch.stack(hidden))


def gradients(net, out):
    leaves = [p for p in net.parameters() if p.requires_grad]
    return torch.autograd.grad(out.square().sum(), leaves)


@pytest.mark.parametrize('null_score', [None, -3.0, 1.0])
@pytest.mark.parametrize('k', [4, 10**6])
@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('seen', SEEN)
def test_equals_the_definition(seen, training, k, null_score):
    net = make(eval_k=k, null_score=null_score).train(training)
    (x, y), kwargs = draw_rows(), SEEN[seen]
    k = 10**6 if training else k
    expected = definition(net, x, x, y, lambda i, j: is_seen(i, j, **kwargs), k)
    out = net(x, y, **kwargs)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(gradients(net, out), gradients(net, expected))


@pytest.mark.parametrize('null_score', [None, -1.0])
@pytest.mark.parametrize('k', [4, 10**6])
@pytest.mark.parametrize('training', [True, False])
def test_new_rows_equal_the_definition(training, k, null_score):
    net = make(eval_k=k, null_score=null_score).train(training)
    (x, y), (new, _) = draw_rows(), draw_rows(6, seed=5)
    k = 10**6 if training else k
    expected = definition(net, x, new, y, lambda i, j: True, k)
    out = net((x, new), y)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(gradients(net, out), gradients(net, expected))
    if not training:
        torch.testing.assert_close(net.index(x, y)(new), out)


@pytest.mark.parametrize('draws', [None, 2])
@pytest.mark.parametrize('seen', SEEN)
def test_a_block_is_a_call_of_its_own(seen, draws):
    net, (x, y) = make(draws=draws, null_score=0.5), draw_rows()
    net.train(draws is not None)
    kwargs = SEEN[seen] | {'batch': BATCH}
    blocks = [torch.nonzero(i == BATCH).view(-1) for i in range(3)]
    generator = seeded(3)
    alone = [
        net(
            x[rows],
            y[rows],
            **{name: value[rows] for name, value in kwargs.items() if name != 'batch'},
            generator=generator,
        )
        for rows in blocks
    ]
    out = net(x, y, **kwargs, generator=seeded(3))
    torch.testing.assert_close(out, torch.cat(alone))


@pytest.mark.parametrize('options', [{}, {'draws': 3}, {'graph_dropout': 0.4}])
@pytest.mark.parametrize('null_score', [None, 0.5])
@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('seen', [*SEEN, 'new rows'])
def test_the_graph_is_the_one_that_was_summed(seen, training, null_score, options):
    net = make(null_score=null_score, eval_k=5, **options).train(training)
    (x, y), kwargs = draw_rows(), SEEN.get(seen, {})
    new = draw_rows(6, seed=5)[0] if seen == 'new rows' else None
    rows, dst = (x, x) if new is None else ((x, new), new)
    out, graph = net(rows, y, **kwargs, generator=seeded(9), return_graph=True)
    source, target = graph.edge_index
    pairs = zip(target.tolist(), source.tolist(), strict=True)
    assert new is not None or all(is_seen(i, j, **kwargs) for i, j in pairs)
    message = net.lin_value(net.encoder(x)) + net.label(y)
    h = net.encoder(dst) + weighted_sum(message, *graph, num_targets=len(dst))
    torch.testing.assert_close(out, after_the_sum(net, h))
    if not training:
        assert target.bincount().max() == 5
        assert torch.equal(net(rows, y, **kwargs), out)
    share = torch.zeros(len(dst)).double().index_add(0, target, graph.edge_weight)
    if not training or 'graph_dropout' not in options:
        hears = share[target.unique()]
        assert bool((hears < 1 - 1e-6).all() if null_score else (hears > 0.999).all())


@pytest.mark.parametrize('seen', SEEN)
@pytest.mark.parametrize('draws', [None, 3])
@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('num_classes', [0, 3])
def test_labels_of_hidden_rows_make_no_difference(seen, draws, training, num_classes):
    """No row hears its own label, nor those that it must not see."""
    options = {'draws': draws, 'dropout': 0.3, 'graph_dropout': 0.3, 'null_score': 0.0}
    net = make(max(1, num_classes), **options).train(training)
    (x, y), kwargs = draw_rows(), SEEN[seen]
    y = torch.randint(3, (N,), generator=seeded(4)) if num_classes else y
    out = net(x, y, **kwargs, generator=seeded(9))
    for j in range(N):
        changed = y.clone()
        changed[j] = (y[j] + 1) % 3 if num_classes else y[j] + 100
        moved = (net(x, changed, **kwargs, generator=seeded(9)) != out).any(dim=1)
        assert all(is_seen(i, j, **kwargs) for i in moved.nonzero().view(-1).tolist())
        assert kwargs or bool(moved.any())


def test_scores_in_blocks_of_rows(monkeypatch):
    net, (x, y), kwargs = make(null_score=0.0), draw_rows(), SEEN['all']
    expected, graph = net(x, y, **kwargs, return_graph=True)
    expected_gradients = gradients(net, expected)
    module = 'torch_geometric_gsl.nn.models.table_parts'
    monkeypatch.setattr(f'{module}._RANKING_BUDGET', 16 * 11 * 3)
    out, edges = net(x, y, **kwargs, return_graph=True)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(tuple(edges), tuple(graph))
    torch.testing.assert_close(gradients(net, out), expected_gradients)


def test_weights_are_not_denormal():
    net, (x, y) = make().float(), draw_rows()
    with torch.no_grad():
        net.lin_key.weight.mul_(6)  # Distances of up to some hundred.
    x, y = x.float(), y.float()
    _, graph = net(x, y, batch=torch.zeros(N).long(), return_graph=True)
    assert graph.edge_weight.min() > 1e-14
    assert graph.edge_index.size(1) < N * (N - 1) / 2


def test_rows_that_see_none_are_answered_by_their_columns():
    net, (x, y) = make(), draw_rows()
    out = net(x, y, group=torch.zeros(N).long())
    torch.testing.assert_close(out, after_the_sum(net, net.encoder(x)))
    assert all(g.isfinite().all() for g in gradients(net, out))


@pytest.mark.parametrize('name', ['batch', 'group', 'order'])
@pytest.mark.parametrize('form', ['pair', 'index'])
def test_masks_need_one_set_of_rows(form, name):
    net, (x, y) = make().eval(), draw_rows()
    args = ((x, x[:3]), y)
    if form == 'index':
        net.index(x, y)
        args = (x,)
    text = f"'{name}' is not supported unless all rows are one tensor"
    with pytest.raises(ValueError, match=text):
        net(*args, **{name: torch.zeros(N).long()})


def test_the_null_score_is_learned_and_saved(tmp_path):
    net, (x, y) = make(null_score=0.7).float(), draw_rows()
    net(x.float(), y.float()).sum().backward()
    score = net.neighbours.sampler.null_score
    assert score.grad.abs() > 0
    with torch.no_grad():
        score.fill_(1.25)
    net.save(tmp_path / 'net.pt')
    again = TableNet.load(tmp_path / 'net.pt')
    assert again.neighbours.sampler.null_score.item() == 1.25
