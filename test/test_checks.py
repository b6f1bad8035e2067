import re

import numpy as np
import pytest
import torch

from torch_geometric_gsl import _checks as checks

NAN, INF = float('nan'), float('inf')
X = torch.ones(3, 4)
META = torch.ones(3, 4, device='meta')


def edges(*rows):
    return torch.tensor(rows, dtype=torch.long)


def half(value):
    return torch.full((3, 4), value, dtype=torch.float16)


NUMBERS = [
    (checks.check_option, ('c', ['a', 'b'], 'o'), ValueError,
     "'o' must be one of ['a', 'b'] (got 'c')"),
    (checks.check_option, (None, ('a',), 'o'), ValueError,
     "'o' must be one of ['a'] (got None)"),
    (checks.check_option, ('gauss', ['a', 'gaussian'], 'o'), ValueError,
     "'o' must be one of ['a', 'gaussian'] (got 'gauss'): did you mean 'gaussian'?"),
    (checks.check_positive, ('1', 'n'), TypeError,
     "'n' must be a positive number (got str)"),
    (checks.check_positive, (True, 'n'), TypeError,
     "'n' must be a positive number (got bool)"),
    *((checks.check_positive, (value, 'n'), ValueError,
       f"'n' must be positive and finite (got {value})") for value in (0, -1.5)),
    *((checks.check_positive, (value, 'n'), ValueError,
       f"'n' must be finite (got {value})") for value in (NAN, INF)),
    (checks.check_number, (None, 'n'), TypeError,
     "'n' must be a number (got NoneType)"),
    (checks.check_number, (NAN, 'n'), ValueError, "'n' must be finite (got nan)"),
    (checks.check_number, (-INF, 'n'), ValueError, "'n' must be finite (got -inf)"),
    (checks.check_count, (2.0, 'n'), TypeError, "'n' must be an integer (got float)"),
    (checks.check_count, (True, 'n'), TypeError, "'n' must be an integer (got bool)"),
    (checks.check_count, (0, 'n'), ValueError, "'n' must be at least 1 (got 0)"),
    (checks.check_count, (1, 'n', 2), ValueError, "'n' must be at least 2 (got 1)"),
    *((checks.check_probability, (value, 'n'), ValueError,
       f"'n' must lie in [0, 1) (got {value})") for value in (1.0, -0.1)),
    (checks.check_probability, (NAN, 'n'), ValueError, "'n' must be finite (got nan)"),
]  # fmt: skip

FEATURES = [
    (checks.check_features, (np.ones((2, 2)), 'h'), TypeError,
     "'h' must be a torch.Tensor (got ndarray)"),
    (checks.check_features, (X.to_sparse_coo(),), ValueError,
     "'x' must be dense or sparse CSR (got torch.sparse_coo)"),
    (checks.check_features, (X[0],), ValueError,
     "'x' must have shape [num_nodes, channels] (got [4])"),
    (checks.check_features, (X.long(),), TypeError,
     "'x' must be floating-point (got torch.int64)"),
    (checks.check_features, (X, 'x', 5), ValueError,
     "'x' must have 5 channels (got 4)"),
    (checks.check_features, (X * NAN,), ValueError,
     "'x' contains NaN or infinite values (got 12 of 12)"),
    (checks.check_features, (X.to_sparse_csr() * NAN, 'h'), ValueError,
     "'h' contains NaN or infinite values (got 12 of 12)"),
    (checks.check_features, (torch.tensor([[INF, -INF]]),), ValueError,
     "'x' contains NaN or infinite values (got 2 of 2)"),
    (checks.check_features, (half(INF),), ValueError,
     "'x' contains NaN or infinite values (got 12 of 12)"),
    (checks.check_ends, ((X,),), ValueError,
     "'x' must be a tensor or a pair (x_src, x_dst) (got 1 tensors)"),
    (checks.check_ends, ((X, None),), TypeError,
     "'x_dst' must be a torch.Tensor (got NoneType)"),
    (checks.check_ends, ((X[0], X),), ValueError,
     "'x_src' must have shape [num_nodes, channels] (got [4])"),
    (checks.check_ends, ((X, X.double()),), ValueError,
     "'x_src' and 'x_dst' must share one dtype "
     '(got torch.float32 and torch.float64)'),
    (checks.check_ends, ((X, META),), ValueError,
     "'x_src' and 'x_dst' must share one device (got cpu and meta)"),
    (checks.check_ends, ((X, X[:, :2]),), ValueError,
     "'x_src' and 'x_dst' must share one width (got 4 and 2)"),
    (checks.check_parameter_match, (X, META), ValueError,
     "'x' is on cpu but the parameters are on meta"),
    (checks.check_parameter_match, (X, X.double(), 'h'), TypeError,
     "'h' has torch.float32 but the parameters have torch.float64: pass "
     "'h.to(torch.float64)'"),
    (checks.Ends.of, ((X,), 'z'), ValueError,
     "'z' must be a tensor or a pair (z_src, z_dst) (got 1 tensors)"),
    (checks.Ends.of((X, X)).like, (X, 'batch'), TypeError,
     "'batch' must be a pair like 'x' (got a Tensor)"),
    (checks.Ends.of(X).like, ((X, X), 'batch'), TypeError,
     "'batch' must be a tensor like 'x' (got a tuple)"),
    (checks.check_compared, (X, 4, X[:2]), ValueError,
     "'z' must have one row per node (got 3 for 2 nodes)"),
    (checks.check_messages, (X.bool(), 3, X.device), TypeError,
     "'h' must be floating-point (got torch.bool)"),
    (checks.check_messages, (META, 3, X.device), ValueError,
     "'h' is on meta but 'x' is on cpu"),
    (checks.check_num_nodes, (X, 5), ValueError,
     "'x' must have num_nodes=5 rows (got 3): this model has weights for "
     'each node of one data set'),
]  # fmt: skip

INDICES = [
    (checks.check_edge_index, ([[0], [0]], X, X), TypeError,
     "'edge_index' must be a torch.Tensor (got list)"),
    (checks.check_edge_index, (edges([0], [0]).int(), X, X), TypeError,
     "'edge_index' must have dtype torch.int64 (got torch.int32)"),
    (checks.check_edge_index, (edges([0], [0], [0]), X, X), ValueError,
     "'edge_index' must have shape [2, num_edges] (got [3, 1])"),
    (checks.check_edge_index, (edges([0], [0]).to('meta'), X, X), ValueError,
     "'edge_index' is on meta but 'x' is on cpu"),
    *((checks.check_edge_index, (edges([2, j], [i, 0]), X, X[:2]), ValueError,
       f"'edge_index' has {text}")
      for j, i, text in [
          (3, 0, 'sources outside 0..2 (got 2..3)'),
          (-1, 0, 'sources outside 0..2 (got -1..2)'),
          (1, 2, 'targets outside 0..1 (got 0..2)'),
          (1, -1, 'targets outside 0..1 (got -1..0)')]),
    (checks.check_batch, (edges([0, 0, 0]), X), ValueError,
     "'batch' must have shape [num_nodes] (got [1, 3])"),
    (checks.check_batch, (edges([0, 0])[0], X), ValueError,
     "'batch' must have one entry per node (got 2 for 3 nodes)"),
    (checks.check_batch, (edges([-1, 0, 0])[0], X), ValueError,
     "'batch' must not be negative (got -1)"),
    (checks.check_batch, (edges([0, 1, 0])[0], X, 'b'), ValueError,
     "'b' must be sorted (got 0 after 1)"),
    (checks.check_candidate_count, (2, 1, ' of graph 7'), ValueError,
     "'k' must not exceed the number of candidates of graph 7 "
     '(got k=2 for 1 candidates)'),
    (checks.check_generator, (3, X.device), TypeError,
     "'generator' must be a torch.Generator (got int)"),
    (checks.check_generator, (torch.Generator(), META.device), ValueError,
     "'generator' is on cpu but the features are on meta"),
]  # fmt: skip


@pytest.mark.parametrize(
    ('check', 'args', 'error', 'text'), NUMBERS + FEATURES + INDICES
)
def test_error(check, args, error, text):
    with pytest.raises(error, match=f'^{re.escape(text)}$'):
        check(*args)


VALID = [
    (checks.check_option, ('a', {'a': 1, 'b': 2}, 'o')),
    (checks.check_positive, (np.float32(0.5), 'n')),
    (checks.check_number, (-1.5, 'n')),
    (checks.check_count, (np.int64(4), 'n')),
    (checks.check_count, (0, 'n', 0)),
    *((checks.check_probability, (value, 'n')) for value in (0, 0.999)),
    *((checks.check_features, (x,)) for x in (X.to_sparse_csr(), X[:0], X.bfloat16())),
    (checks.check_features, (X, 'x', -1)),
    # Finite values whose sum is not: 65504 is the largest half.
    (checks.check_features, (half(60000.0),)),
    (checks.check_features, (torch.full((3, 4), 3e38).to_sparse_csr(),)),
    (checks.check_parameter_match, (X, None)),
    (checks.check_parameter_match, (X, torch.ones(1))),
    (checks.check_edge_index, (edges([2, 0], [1, 0]), X, X[:2])),
    (checks.check_edge_index, (torch.empty(2, 0).long(), X[:0], X[:0])),
    (checks.check_batch, (edges([0, 0, 5])[0], X)),
    (checks.check_batch, (torch.empty(0).long(), X[:0])),
    (checks.check_candidate_count, (3, 3)),
    (checks.check_generator, (None, X.device)),
    (checks.check_generator, (torch.Generator(), X.device)),
    # Tensors without data have no values to check.
    (checks.check_features, (META,)),
    (checks.check_value, (META.sum() > 0, 'text')),
]


@pytest.mark.parametrize(('check', 'args'), VALID)
def test_no_error(check, args):
    check(*args)


def test_pair():
    ends = checks.check_ends(X, 4)
    assert ends.src is X
    assert ends == (X, X, False)
    assert ends.features is X
    assert ends.like(None, 'z') == (None, None, False)
    targets = torch.zeros(2, 4)
    for pair in ((X, targets), [X, targets]):
        ends = checks.check_ends(pair, 4)
        assert all(a is b for a, b in zip(ends, (X, targets, True), strict=True))
        assert ends.features == (X, targets)


def test_the_rows_of_a_layer_are_not_searched_again():
    bad = X * NAN
    ends = checks.Ends.of(bad)
    assert checks.check_ends(ends, 4) is ends
    with pytest.raises(ValueError, match="'x' must have 5 channels"):
        checks.check_ends(ends, 5)
    with pytest.raises(ValueError, match="'x' contains NaN"):
        checks.check_ends(bad)


def test_autocast_allows_other_parameters():
    with torch.autocast('cpu', dtype=torch.bfloat16):
        checks.check_parameter_match(X.bfloat16(), X)
        with pytest.raises(TypeError, match=r"'x' has torch\.float64 but the par"):
            checks.check_parameter_match(X.double(), X)


def test_features_are_left_out_of_the_graph():
    x = torch.ones(2, 2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda _: pytest.fail('saved'), lambda tensor: tensor
    ):
        checks.check_features(x)


def test_what_arrived_is_read_on_demand():
    def got():
        calls.append(1)
        return 7

    calls = []
    checks.check_value(torch.tensor(True), 'text', got)
    assert not calls
    with pytest.raises(ValueError, match=r'^text \(got 7\)$'):
        checks.check_value(torch.tensor(False), 'text', got)


def test_nothing_is_read_while_compiling(monkeypatch):
    monkeypatch.setattr(torch.compiler, 'is_compiling', lambda: True)
    checks.check_value(torch.tensor(False), 'text')
    checks.check_features(X * NAN)
    checks.check_edge_index(edges([9], [9]), X, X)
    # Shapes and types need no data.
    with pytest.raises(TypeError, match="'x' must be floating-point"):
        checks.check_features(X.long())


class OnDevice:
    """Stands for a scalar on a CUDA device, which must not be read."""

    is_cuda = True
    is_meta = False

    def __bool__(self):
        raise RuntimeError('synchronised')


def test_nothing_is_read_from_a_device(monkeypatch):
    seen = []
    monkeypatch.setattr(torch, '_assert_async', lambda *args: seen.append(args))
    holds = OnDevice()
    checks.check_value(holds, 'text')
    checks.check_value(holds, 'text', got=lambda: pytest.fail('read'))
    assert seen == [(holds, 'text'), (holds, 'text')]
