import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.data.storage import GlobalStorage

from torch_geometric_gsl.datasets import load_dataset


def save(folder, content):
    torch.save(content, folder / 'my.pt')
    return folder / 'my.pt'


def test_pt(tmp_path):
    x = torch.tensor([[1.0, 0], [0, 3], [0, 0]], dtype=torch.float64)
    data = Data(x=x, y=torch.tensor([0, 2, 0], dtype=torch.int32))
    data.edge_index = torch.tensor([[0, 1], [1, 2]])
    data.class_names = ['a', 'b', 'c']
    path = save(tmp_path, data)
    out = load_dataset(path)
    assert sorted(out.keys()) == ['class_names', 'x', 'y']
    assert torch.equal(out.x, x.float())
    assert out.y.tolist() == [0, 2, 0]
    assert out.y.dtype == torch.int64
    assert out.class_names == ['a', 'b', 'c']
    assert load_dataset(path, standardize=True).x.mean(dim=0).abs().max() < 1e-6
    # Nothing more is allowed than before, and PyG's own part still is.
    allowed = torch.serialization.get_safe_globals()
    assert Data in allowed
    assert GlobalStorage not in allowed

    out = load_dataset(save(tmp_path, Data(x=x.to_sparse_csr(), y=data.y)))
    assert out.x.layout == torch.sparse_csr
    assert torch.equal(out.x.to_dense(), x.float())
    with pytest.raises(ValueError, match=r"'standardize' must be False .* are sparse"):
        load_dataset(path, standardize=True)


@pytest.mark.parametrize(
    ('labels', 'class_names', 'y'),
    [
        ([0, 1, 2, 1], ['a', 'b', 'c'], [0, 1, 2, 1]),
        # One name for each class, in their order.
        ([1, 2, 3, 2], ['a', 'b', 'c'], [0, 1, 2, 1]),
        ([0, 7, 0, 7], ('a', 'b'), [0, 1, 0, 1]),
        # One name for each number, of which one has no row.
        ([0, 2, 0, 2], ['a', 'b', 'c'], [0, 2, 0, 2]),
        ([1, 2, 3, 2], ['none', 'a', 'b', 'c'], [1, 2, 3, 2]),
    ],
)
def test_class_names(tmp_path, labels, class_names, y):
    content = Data(x=torch.ones(4, 2), y=torch.tensor(labels), class_names=class_names)
    data = load_dataset(save(tmp_path, content))
    assert data.y.tolist() == y
    assert data.class_names == list(class_names)


@pytest.mark.parametrize(
    ('class_names', 'text'),
    [
        (['a'], r"each of the 2 classes of 'y', or .* from 0 to 3 \(got a list of 1\)"),
        (['a'] * 3, r'\(got a list of 3\)'),
        (('a',) * 5, r'\(got a tuple of 5\)'),
        ('ab', r'\(got a str\)'),
        ({0: 'a', 3: 'b'}, r'\(got a dict\)'),
    ],
)
def test_class_names_that_do_not_fit(tmp_path, class_names, text):
    y = torch.tensor([0, 3, 0, 3])
    path = save(tmp_path, Data(x=torch.ones(4, 2), y=y, class_names=class_names))
    with pytest.raises(ValueError, match=rf"^'class_names' in '{path}' must .*{text}$"):
        load_dataset(path)


def bits(*nodes):
    return torch.isin(torch.arange(4), torch.tensor(nodes))


SPLIT = {'train_mask': bits(0), 'val_mask': bits(1), 'test_mask': bits(3)}
BASE = {'x': torch.ones(4, 2), 'y': torch.arange(4) % 2}


def test_a_split_of_the_file_is_kept(tmp_path):
    out = load_dataset(save(tmp_path, Data(**BASE, **SPLIT)))
    for name, mask in SPLIT.items():  # Node 2 is in none of them.
        assert torch.equal(out[name], mask)


@pytest.mark.parametrize(
    ('changes', 'text'),
    [
        ({'val_mask': None}, r"hold all of .*'val_mask', 't.* \(got \['train_mask'"),
        ({'train_mask': None, 'val_mask': None}, r"or none \(got \['test_mask'\]\)"),
        (
            {'val_mask': bits(1).float()},
            r"'val_mask' .* torch.bool, .*\(got torch.fl",
        ),
        ({'val_mask': [1]}, r"'val_mask' in .* \(got list\)"),
        (
            {'test_mask': bits(3)[:3]},
            r'of shape \[4\] on cpu \(got .* of shape \[3\] on',
        ),
        ({'train_mask': bits(0)[:, None]}, r'\(got .* of shape \[4, 1\] on cpu\)'),
        ({'train_mask': bits(0).to('meta')}, r'\(got .* on meta\)'),
        ({'train_mask': bits(0).to_sparse()}, r'\(got .* torch.sparse_coo, of'),
        ({'val_mask': bits()}, r"'val_mask' in .* \(got .* that chooses none\)"),
        (
            {'test_mask': bits(0, 2)},
            r"'train_mask' and 'test_mask' in .* \(got 1 in bo",
        ),
        (
            {'val_mask': bits(1, 3)},
            r"'val_mask' and 'test_mask' .* share nodes \(got 1",
        ),
    ],
)
def test_a_split_is_checked(tmp_path, changes, text):
    masks = {k: v for k, v in (SPLIT | changes).items() if v is not None}
    path = save(tmp_path, Data(**BASE, **masks))
    with pytest.raises(ValueError, match=text) as caught:
        load_dataset(path)
    assert str(path) in str(caught.value)


X, Y = torch.ones(3, 2), torch.arange(3)


@pytest.mark.parametrize(
    ('content', 'text'),
    [
        ({'x': 1}, r'must hold a Data object \(got dict\)'),
        (torch.ones(3), r'must hold a Data object \(got Tensor\)'),
        (Data(y=Y), r"node features: 'x' must be .* \(got NoneType\)"),
        (Data(x=X), r"'y' in .* must be a dense tensor .* \(got NoneType\)"),
        (Data(x=Y, y=Y), r"'x' must have shape \[num_nodes"),
        (Data(x=X, y=Y / 1.0), r"'y' in .* vector of 3 classes.*\(got float32 of"),
        (Data(x=X, y=Y[:2]), r"'y' in .* vector of 3 classes"),
        (Data(x=X, y=Y * 0 + 1), r'at least two classes \(got \{1\}\)'),
        (Data(x=X, y=Y - 1), r"'y' in .* must not be negative \(got -1\)"),
        (Data(x=X * torch.inf, y=Y), r"'x' contains NaN or infinite .* \(got 6 of 6\)"),
        (Data(x=X[:, :0], y=Y), r"'x' must have channels and .* \(got \[3, 0\] on cpu"),
        (Data(x=X.to('meta'), y=Y), r"'x' must have .* values \(got \[3, 2\] on meta"),
        (Data(x=X.to(torch.float8_e5m2), y=Y), 'must hold node features: '),
        (
            Data(x=X, y=Y.bfloat16()),
            r'got torch.bfloat16, torch.strided, of shape',
        ),
        (Data(x=X, y=Y.to_sparse()), r'be a dense .* \(got torch.int64, torch.sparse_'),
        (Data(x=X, y=Y.to('meta')), r'\(got torch.int64, torch.strided, .* on meta'),
        (Data(x=X.double() * 1e39, y=Y), r'6 that are not, or are too large for float'),
    ],
)
def test_damaged_pt(tmp_path, content, text):
    path = save(tmp_path, content)
    with pytest.raises(ValueError, match=text) as caught:
        load_dataset(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ('crow', 'column', 'text'),
    [
        ([0, 1, 2, 3], [0, 1, 10**6], '0 <= col_indices < ncols'),
        ([0, 1, 2, 3], [0, 1, -1], '0 <= col_indices < ncols'),
        ([0, 1, 2, 60], [0, 1, 1], r'crow_indices\[..., -1\] == nnz'),
        ([0, 2, 2, 3], [1, 1, 0], 'are sorted and distinct'),
    ],
)
@pytest.mark.filterwarnings('ignore:Sparse CSR')
def test_damaged_csr(tmp_path, crow, column, text):
    parts = torch.tensor(crow), torch.tensor(column), torch.ones(3)
    x = torch.sparse_csr_tensor(*parts, size=(3, 2), check_invariants=False)
    path = save(tmp_path, Data(x=x, y=Y))
    with pytest.raises(ValueError, match=f"{path}' must hold node features: .*{text}"):
        load_dataset(path)
