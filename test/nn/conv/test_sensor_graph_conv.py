"""One graph of sensors for all windows, against a loop over windows."""

import pytest
import torch
from oracles import noise_of, relaxed, seeded, softmax, to_matrix
from sampling import normal

from torch_geometric_gsl import SampledGraph, SensorGraphConv
from torch_geometric_gsl.datasets import CoupledSensors

N, IN, OUT, K, TAU, SCALE, EMB = 6, 3, 4, 3, 0.7, 4.0, 5
LEADS = pytest.mark.parametrize('lead', [(), (7,), (2, 4)])
# Each sensor has a vector, rows are given, or windows are reduced.
FORMS = {'free': {'num_sensors': N}, 'rows': {'z_channels': EMB}, 'windows': {}}
EACH_FORM = pytest.mark.parametrize('form', FORMS)
TRAINING = pytest.mark.parametrize('training', [True, False])


def make(form='free', **kwargs):
    torch.manual_seed(5)
    options = {'k': K, 'tau': TAU, 'scale': SCALE, **FORMS[form], **kwargs}
    conv = SensorGraphConv(IN, OUT, embedding_channels=EMB, **options).double()
    if conv.bias is not None:
        torch.nn.init.normal_(conv.bias)
    return conv


def windows(*lead, n=N, seed=3):
    return normal(*lead, n, IN, seed=seed)


def sensor_rows(form, n=N):
    """What a call takes beside the windows."""
    return {'z': normal(n, EMB, seed=8)} if form == 'rows' else {}


def weights(conv, z, seed, loop=False):
    """Return the graph, number by number; a seed replays the noise of training."""
    half = EMB if z.size(1) == 2 * EMB else 0
    src, dst = z[:, :EMB], z[:, half:]
    score = torch.empty(N, N, dtype=torch.double)
    for i in range(N):
        for j in range(N):
            cosine = dst[i] @ src[j] / dst[i].norm() / src[j].norm()
            score[i, j] = SCALE * cosine if loop or i != j else -torch.inf
    if seed is not None:
        return relaxed(score, noise_of('dense', seed, score, K, N), TAU)
    rows = [softmax([value / TAU for value in row]) for row in score.tolist()]
    return torch.tensor(rows, dtype=torch.double)


def by_window(conv, x, matrix):
    """Apply the layer to each window alone, with a dense matrix."""
    out = []
    for window in x.reshape(-1, N, IN):
        value = matrix @ window @ conv.lin.weight.t() + conv.bias
        if conv.lin_root is not None:
            value = value + window @ conv.lin_root.weight.t()
        out.append(value)
    return torch.stack(out).view(*x.shape[:-1], OUT)


@TRAINING
@LEADS
@EACH_FORM
@pytest.mark.parametrize('options', [{}, {'directed': False, 'root_weight': False}])
def test_a_loop_over_windows(options, form, lead, training):
    conv, x = make(form, **options).train(training), windows(*lead)
    seed = 7 if training else None
    z = conv.embed(x, **sensor_rows(form)).detach()
    expected = by_window(conv, x, weights(conv, z, seed))
    out = conv(x, **sensor_rows(form), generator=seeded(7))
    assert out.shape == (*lead, N, OUT)
    torch.testing.assert_close(out, expected)
    graph = conv.graph(x, **sensor_rows(form), generator=seeded(7))
    matrix = to_matrix(*graph, N, N)
    torch.testing.assert_close(matrix.detach(), weights(conv, z, seed))
    torch.testing.assert_close(conv(x, graph=graph), expected)


@LEADS
@EACH_FORM
def test_embeddings(form, lead):
    conv, x, kwargs = make(form, directed=False), windows(*lead), sensor_rows(form)
    embed = conv.embed
    if form == 'free':
        expected = embed.weight
    elif form == 'rows':
        expected = kwargs['z'] @ embed.lin.weight.t() + embed.lin.bias
    else:
        total, flat, lin = torch.zeros(N, EMB).double(), x.view(-1, N, IN), embed.lin
        for window in flat:
            for sensor in range(N):
                hidden = embed.lin_window.weight @ window[sensor]
                total[sensor] += (hidden + embed.lin_window.bias).clamp(min=0)
        expected = total / len(flat) @ lin.weight.t() + lin.bias
    torch.testing.assert_close(embed(x, **kwargs), expected)
    if form != 'free':
        pair = {'z': (kwargs['z'], kwargs['z'][:2])} if kwargs else {}
        src, dst = embed((x, x[..., :2, :]), **pair)
        torch.testing.assert_close(src, expected)
        torch.testing.assert_close(dst, expected[:2])


@EACH_FORM
def test_one_draw_a_call(form):
    conv, draws = make(form), []
    handle = conv.sampler.register_draw_hook(lambda *args: draws.append(args))
    x = windows(9, 4)
    out = conv(x, **sensor_rows(form))
    assert len(draws) == 1
    # All windows share it: equal windows get equal answers, noise and all.
    graph = conv.graph(x, **sensor_rows(form))
    assert len(draws) == 2
    for _ in range(3):
        conv(x, graph=graph)
    assert len(draws) == 2
    handle.remove()
    same = conv(x[:1, :1].expand(5, 2, N, IN), **sensor_rows(form))
    torch.testing.assert_close(same, same[:1, :1].expand_as(same))
    assert not torch.allclose(out, conv(x, **sensor_rows(form)))


@pytest.mark.parametrize('form', ['rows', 'windows'])
@LEADS
def test_new_sensors_join_others(form, lead):
    # Loops are allowed, for a pair knows of no sensor that is its own.
    conv, x = make(form, loop=True).eval(), windows(*lead)
    z = sensor_rows(form).get('z')
    full, rows = conv(x, **sensor_rows(form)), torch.tensor([4, 1])
    pair = {} if z is None else {'z': (z, z[rows])}
    out = conv((x, x[..., rows, :]), **pair)
    torch.testing.assert_close(out, full[..., rows, :])
    graph = conv.graph((x, x[..., rows, :]), **pair)
    again = conv((x, x[..., rows, :]), graph=graph)
    torch.testing.assert_close(again, full[..., rows, :])
    conv.train()
    assert conv((x, x[..., rows, :]), **pair).shape == (*lead, 2, OUT)


def test_any_other_graph():
    conv, x = make(), windows(7)
    edges = torch.tensor([[5, 0, 2, 1], [0, 3, 0, 2]])  # Not sorted by target.
    weight = torch.tensor([0.5, 1.0, 2.0, -1.0]).double().requires_grad_()
    matrix = to_matrix(edges, weight, N, N)
    out = conv(x, graph=(edges, weight))
    torch.testing.assert_close(out, by_window(conv, x, matrix))
    out.sum().backward()
    assert float(weight.grad.abs().min()) > 0


@TRAINING
@EACH_FORM
@pytest.mark.filterwarnings('ignore:each target has')
def test_no_windows_and_one_sensor(form, training):
    conv = make(form).train(training)
    for lead in ((0,), (3, 0)):
        assert conv(windows(*lead), **sensor_rows(form)).shape == (*lead, N, OUT)
    torch.manual_seed(5)
    options = {'num_sensors': 1} if form == 'free' else FORMS[form]
    alone = SensorGraphConv(IN, OUT, k=1, loop=True, **options)
    alone, x = alone.double().train(training), windows(7, n=1)
    kwargs = sensor_rows(form, 1)
    torch.testing.assert_close(
        alone(x, **kwargs), x @ (alone.lin.weight + alone.lin_root.weight).t()
    )
    alone.sampler.loop = False
    torch.testing.assert_close(alone(x, **kwargs), x @ alone.lin_root.weight.t())


def test_bad_input():
    x, free, reduced, compared = windows(7), make(), make('windows'), make('rows')
    z = sensor_rows('rows')['z']
    edge = torch.zeros(2, 1, dtype=torch.long)
    graph = SampledGraph(edge + torch.tensor([[0], [N]]), torch.ones(1).double())
    for call, error, match in (
        (lambda: free(x[:, 0, 0]), ValueError, r"'x' must be dense, .* \(got \[7\]"),
        (lambda: free(x[:, :4]), ValueError, r'num_sensors=6 sensors \(got 4\)'),
        (lambda: free((x, x)), TypeError, 'no learned vector'),
        (lambda: reduced((x[:3], x)), ValueError, "'x_src' must have the same windows"),
        (lambda: reduced.graph(), TypeError, "'x' must be a tensor of windows wit"),
        (lambda: reduced.graph((x, None)), TypeError, "'x_dst' must be a tensor of"),
        (lambda: free(x, z=z), ValueError, r"'z' needs a layer with 'z_channels' \(go"),
        (lambda: compared((x, x), z=z), TypeError, "'z' must be a pair like 'x'"),
        (lambda: compared(x, z=(z, z)), TypeError, "'z' must be a tensor like 'x'"),
        (lambda: free(x, graph=3), TypeError, r"'graph' must be a pair .* \(got int"),
        (lambda: free(x, graph=graph), ValueError, "'graph' has targets outside 0..5"),
        (lambda: free(x, graph=(edge, torch.ones(2))), ValueError, 'one weight per e'),
        (lambda: free(x, graph=graph, z=x), ValueError, "'z' is not supported with a"),
        (lambda: make(k=N, replace=False)(x), ValueError, 'k=6 for 5 candidates'),
    ):
        with pytest.raises(error, match=match):
            call()


def test_it_finds_the_couplings_of_a_forecast():
    dataset = CoupledSensors(num_sensors=N, num_sources=1, num_steps=800, seed=2)
    x, y = (value.squeeze(-1).transpose(1, 2) for value in dataset.windows(1))
    torch.manual_seed(0)
    conv = SensorGraphConv(1, 1, N, bias=False)
    optimizer = torch.optim.Adam(conv.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        (conv(x.tanh()) - y).square().mean().backward()
        optimizer.step()
    weight = to_matrix(*conv.eval().graph(), N, N)
    source, target = dataset[0].true_edge_index
    # Most of the weight of each sensor lies on its one source, in the right direction.
    assert float(weight.detach()[target, source].min()) > 0.8
