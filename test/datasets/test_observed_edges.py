import pytest
import torch

from torch_geometric_gsl.datasets import OBSERVED, load_observed_edges, observed_edges

SIZES = {
    'CiteSeer': (3327, 4552),
    'PubMed': (19717, 44324),
    'Chameleon': (2277, 31371),
    'Squirrel': (5201, 198353),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(observed_edges, 'raw_folder', lambda *args: tmp_path)
    return tmp_path


@pytest.mark.parametrize('name', SIZES)
def test_observed_edges_of_real_data(name, gsl_data, monkeypatch):
    """They are as many as PyTorch Geometric reads from the same files."""
    nodes, pairs = SIZES[name]
    is_wikipedia = name in ('Chameleon', 'Squirrel')
    folder = f'{name.lower()}/geom_gcn/raw' if is_wikipedia else f'{name}/raw'
    file = gsl_data(f'{folder}/{OBSERVED[name].rpartition("/")[2]}')
    monkeypatch.setattr(observed_edges, 'raw_folder', lambda *args: file.parent)
    source, target = found = load_observed_edges(name, nodes)
    assert found.shape == (2, 2 * pairs)
    assert not (source == target).any()
    code = source * nodes + target
    assert (code.diff() > 0).all()  # Each once, sorted.
    assert torch.equal((target * nodes + source).sort().values, code)
    with pytest.raises(OSError, match=r'its nodes must lie in 0\.\.99'):
        load_observed_edges(name, 100)


def test_a_file_of_lines(folder):
    path = folder / 'out1_graph_edges.txt'
    path.write_text('node_id\tnode_id\n2\t0\n0\t2\n1\t1\n1\t2\n')
    found = load_observed_edges('Chameleon', 3)
    assert found.tolist() == [[0, 1, 2, 2], [2, 2, 0, 1]]
    for text in ('2\t0\t1\n', '2\ta\n', '-1\t0\n', '3\t0\n'):
        path.write_text('node_id\tnode_id\n' + text)
        with pytest.raises(OSError, match=r'out1_graph_edges\.txt'):
            load_observed_edges('Chameleon', 3)


def test_a_pickle_executes_nothing(folder):
    path = folder / 'ind.citeseer.graph'
    path.write_bytes(b"cos\nsystem\n(S'touch " + str(folder).encode() + b"/x'\ntR.")
    with pytest.raises(OSError, match=r'ind\.citeseer\.graph'):
        load_observed_edges('CiteSeer', 3)
    assert not (folder / 'x').exists()


def test_arguments(monkeypatch):
    assert tuple(OBSERVED) == tuple(SIZES)
    with pytest.raises(ValueError, match="'name' must be one of"):
        load_observed_edges('Cora', 3)
    with pytest.raises(ValueError, match="'num_nodes' must be at least 1"):
        load_observed_edges('CiteSeer', 0)
    monkeypatch.setattr(observed_edges, 'raw_folder', lambda *args: None)
    with pytest.raises(OSError, match='load its features first'):
        load_observed_edges('CiteSeer', 3)
