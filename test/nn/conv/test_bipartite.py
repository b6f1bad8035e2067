"""Sources and targets of different widths, against a sampler and a product."""

import pytest
import torch
from oracles import seeded, to_matrix
from sampling import normal

from torch_geometric_gsl import GumbelKNNSampler, LatentGraphConv
from torch_geometric_gsl.nn.sampler.options import PAPER
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity

S_IN, T_IN, OUT, K, TAU = 5, 6, 4, 3, 0.4
SOURCES, TARGETS = normal(9, S_IN, seed=1), normal(12, T_IN, seed=2)
BOTH = SOURCES, TARGETS
ROWS = normal(9, 2, seed=3), normal(12, 2, seed=4)
PLAIN = {'root_weight': False, 'bias': False}
TRAINING = pytest.mark.parametrize('training', [True, False])
MODES = {
    'projected': {},
    'linear': {'similarity': 'linear', 'scale': 3.0},
    'input': {'z_channels': -1},
    'rows': {'z_channels': 2},
}
EACH = pytest.mark.parametrize('mode', MODES)


def make(mode='projected', **options):
    torch.manual_seed(5)
    pair = (S_IN, S_IN if mode == 'input' else T_IN)
    options = {**PAPER, 'k': K, 'tau': TAU, **PLAIN, **MODES[mode], **options}
    return LatentGraphConv(pair, OUT, **options).double()


def call(mode):
    """Return the pair of rows, and what else the layer is called with."""
    x = SOURCES, TARGETS[:, :S_IN] if mode == 'input' else TARGETS
    return x, {'z': ROWS} if mode == 'rows' else {}


def plain_graph(conv, mode, x, seed):
    """Draw the graph by a sampler of its own, as a matrix [targets, sources]."""
    compared = {'input': x, 'rows': ROWS}.get(mode)
    if compared is None:
        compared = x[0] @ conv.lin.weight.t(), x[1] @ conv.lin_dst.weight.t()
    name = MODES[mode].get('similarity', 'neural_gaussian')
    similarity = resolve_similarity(name, compared[0].size(1)).double()
    similarity.load_state_dict(conv.sampler.similarity.state_dict())
    options = {'scale': MODES[mode].get('scale', 1.0), 'method': 'dense'}
    sampler = GumbelKNNSampler.paper(similarity, K, TAU, **options).train(conv.training)
    return to_matrix(*sampler(compared, generator=seeded(seed)), 12, 9)


@EACH
@TRAINING
@pytest.mark.parametrize('has_root', [False, True])
def test_the_definition(mode, training, has_root):
    options = dict.fromkeys(PLAIN, True) if has_root else {}
    conv = make(mode, method='dense', **options).train(training)
    x, kwargs = call(mode)
    matrix = plain_graph(conv, mode, x, seed=7)
    torch.testing.assert_close(matrix.sum(dim=1), torch.ones(12).double())
    expected = matrix @ SOURCES @ conv.lin.weight.t()
    if has_root:
        torch.nn.init.normal_(conv.bias)
        expected = expected + x[1] @ conv.lin_root.weight.t() + conv.bias
    torch.testing.assert_close(conv(x, **kwargs, generator=seeded(7)), expected)
    graph = conv.graph(x, **kwargs, generator=seeded(7))
    torch.testing.assert_close(to_matrix(*graph, 12, 9), matrix)


def test_what_is_not_compared_is_not_projected():
    names = {name for name, _ in make().named_parameters()}
    sampler = {f'sampler.similarity.{name}' for name in ('w_b', 'w_c')}
    assert names == {'lin.weight', 'lin_dst.weight'} | sampler
    for mode in ('input', 'rows'):
        assert make(mode).lin_dst is None
    conv = make(root_weight=True)
    assert conv.lin_root.weight.shape == conv.lin_dst.weight.shape == (OUT, T_IN)
    # Ends of one width that are given as a pair have two projections, too.
    assert LatentGraphConv((5, 5), OUT).lin_dst is not None
    assert LatentGraphConv(5, OUT).lin_dst is None


def test_candidates_and_batches():
    conv = make(method='dense').eval()
    edges = torch.tensor([[0, 1, 8, 2], [0, 0, 3, 11]])
    graph = conv.graph(BOTH, edges)
    assert torch.equal(graph.edge_index, edges)
    out = conv(BOTH, edges)
    matrix = to_matrix(*graph, 12, 9)
    torch.testing.assert_close(out, matrix @ SOURCES @ conv.lin.weight.t())
    assert not out[[1, 2, *range(4, 11)]].any()  # Without candidates, no messages.
    batch = torch.arange(9) // 5, torch.arange(12) // 6
    together = conv(BOTH, batch=batch)
    apart = [conv((SOURCES[:5], TARGETS[:6])), conv((SOURCES[5:], TARGETS[6:]))]
    torch.testing.assert_close(together, torch.cat(apart))


def test_lazy_sizes():
    x = SOURCES.float(), TARGETS.float()
    conv = LatentGraphConv((-1, -1), OUT)
    assert conv(x).shape == (12, OUT)
    assert conv.lin.weight.shape == (OUT, S_IN)
    assert conv.lin_dst.weight.shape == conv.lin_root.weight.shape == (OUT, T_IN)
    again = LatentGraphConv((-1, T_IN), OUT)
    again.load_state_dict(conv.state_dict())
    assert torch.equal(again.eval()(x), conv.eval()(x))
    # Targets that are compared by other rows, and not projected, are of any width.
    conv = LatentGraphConv((-1, -1), OUT, z_channels=2, **PLAIN)
    z = tuple(rows.float() for rows in ROWS)
    assert torch.equal(conv.eval()(x, z=z), conv((x[0], x[1][:, :2]), z=z))


@pytest.mark.parametrize(
    ('x', 'error', 'text'),
    [
        ((SOURCES, SOURCES), ValueError, r"'x_dst' must have 6 channels \(got 5\)"),
        ((TARGETS, TARGETS), ValueError, r"'x_src' must have 5 channels \(got 6\)"),
        ((SOURCES, TARGETS / 0), ValueError, "'x_dst' contains NaN or infinite values"),
        ((SOURCES / 0, TARGETS), ValueError, "'x_src' contains NaN or infinite values"),
        ((SOURCES, TARGETS.float()), TypeError, "'x_dst' has torch.float32 but the"),
        ((SOURCES, None), TypeError, r"'x_dst' must be a torch.Tensor \(got NoneType"),
        (SOURCES, TypeError, r'with in_channels=\(5, 6\) \(got a Tensor\)'),
        ((SOURCES,) * 3, ValueError, r'pair \(x_src, x_dst\) \(got 3 tensors\)'),
    ],
)
def test_bad_calls(x, error, text):
    for run in (make(), make().graph):
        with pytest.raises(error, match=text):
            run(x)
