"""The examples run, on tables small enough for seconds."""

import importlib
import runpy
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from oracles import run_alone

from torch_geometric_gsl.distributed import RowShard

EXAMPLES = Path(__file__).parents[1] / 'examples'
DISTRIBUTED = ('--nodes', '90', '--features', '6', '--epochs', '8', '--backend', 'gloo')


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs an example in an empty folder, and returns its names or its exit status."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)

    def run(name, *args):
        monkeypatch.setattr(sys, 'argv', [name, *map(str, args)])
        try:
            return runpy.run_path(str(EXAMPLES / f'{name}.py'), run_name='__main__')
        except SystemExit as error:
            return error.code

    yield run
    torch.set_default_dtype(torch.float)


def write_documents(path):
    """Documents of three classes, each with words of its own."""
    rng = np.random.default_rng(0)
    y = np.arange(130) % 3
    rate = 0.05 + 0.8 * (np.arange(18) % 3 == y[:, None])
    np.savez(path, x=(rng.random((130, 18)) < rate).astype(np.float32), y=y)


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore:.* still improved after')
@pytest.mark.parametrize(
    ('name', 'args', 'printed'),
    [
        (
            'documents_and_words',
            '--dataset bags.npz --quick --picture new/out.png',
            'test accuracy in %, 2 splits of 120 documents',
        ),
        (
            'sensors',
            '--quick --data {"num_sensors":6,"num_steps":300} --picture new/out.png',
            'learned graph',
        ),
        ('demo', '--known 200 --out new/out.png', 'The blend'),
        ('table_explained', '--rows 120 --out new/out.png', 'blend: R2'),
        ('two_relations', '--quick --picture new/out.png', 'true graph'),
    ],
)
def test_prints_and_draws(name, args, printed, run, monkeypatch, capsys):
    for library in ('matplotlib', 'pandas', 'sklearn', 'rtdl_num_embeddings'):
        pytest.importorskip(library)
    from torch_geometric_gsl import sklearn

    few = partial(sklearn.GSLRegressor, max_iter=2)
    monkeypatch.setattr(sklearn, 'GSLRegressor', few)
    Path('new').mkdir()
    write_documents('bags.npz')
    run(name, *args.split())
    assert printed in capsys.readouterr().out
    assert Path('new/out.png').stat().st_size > 1_000


@pytest.mark.slow
def test_a_loop_over_a_file_goes_on_from_its_checkpoint(run, tmp_path, monkeypatch):
    ends = []
    for folder, epochs in {'straight': '2', 'resumed': '12'}.items():
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        for num_epochs in epochs:
            names = run('minibatch', '--rows', 16 * 2048, '--epochs', num_epochs)
        assert not list(Path().rglob('*.part'))
        folder = names['table'].parent
        ends.append(
            [
                torch.load(folder / f'{name}.pt', weights_only=True)
                for name in ('free', 'anchors', 'near', 'mlp')
            ]
        )
    for straight, resumed in zip(*ends, strict=True):
        assert straight['done'] == resumed['done'] == 2 * (16 - 8)
        for name, value in straight['model'].items():
            assert torch.equal(value, resumed['model'][name]), name
    # The rows held back are not trained on.
    assert sorted(set(names['order'].tolist())) == list(range(8))


@pytest.mark.slow
def test_two_processes_of_which_one_dies(tmp_path):
    begin = ('-m', 'torch.distributed.run', '--standalone', '--nproc-per-node=2')
    script = str(EXAMPLES / 'distributed.py')
    options = ('--check', '--checkpoint', str(tmp_path), '--die-at', '6')
    printed, _ = run_alone(*begin, '--max-restarts=1', script, *DISTRIBUTED, *options)
    # Once by those who died, and once by those who went on.
    assert printed.count('tolerance 1e-09: passed') == 2
    assert printed.count('equal: True') == 4
    assert '2 processes, 90 nodes, steps 5..8, loss ' in printed


@pytest.mark.parametrize(('factor', 'word'), [(1.0, 'passed'), (1.001, 'FAILED')])
def test_a_difference_between_processes_is_an_error(
    factor, word, run, capsys, monkeypatch
):
    gather = RowShard.gather

    def disturbed(shard, x):
        out = gather(shard, x)
        return out * factor if out.is_floating_point() else out

    monkeypatch.setattr(RowShard, 'gather', disturbed)
    assert run('distributed', *DISTRIBUTED, '--check') == (word != 'passed')
    assert f'tolerance 1e-09: {word}' in capsys.readouterr().out


@pytest.mark.filterwarnings('ignore')  # Lightning's own.
def test_lightning(run, capsys, monkeypatch):
    missing = pytest.MonkeyPatch()
    missing.setitem(sys.modules, 'lightning', None)
    assert run('train_with_lightning') == (
        "This example needs Lightning, and is skipped: pip install 'lightning'"
    )
    missing.undo()
    pytest.importorskip('lightning')
    run('train_with_lightning')
    accuracy = float(capsys.readouterr().out.split('test accuracy ')[1].split()[0])
    assert accuracy > 90


def test_relations_are_summed_by_their_shares(run):
    pytest.importorskip('matplotlib')
    make = run('two_relations', '--quick')['RelationsConv']
    conv, x = make(6, 4, ['linear', 'cosine']).eval(), torch.randn(20, 6)
    with torch.no_grad():
        conv.logit.copy_(torch.tensor([1.0, 3.0]).log())
    linear, cosine = conv.convs
    expected = linear(x) / 4 + 3 * cosine(x) / 4 + conv.lin_root(x) + conv.bias
    torch.testing.assert_close(conv(x), expected)


def test_consistency_of_two_draws(monkeypatch):
    pytest.importorskip('sklearn')
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module('consistency')
    share = torch.tensor([[0.8, 0.2], [0.4, 0.6]])
    # The mean .6, .4 is sharpened to .36 and .16, over their sum.
    sharpened = 0.36 / 0.52
    expected = 2 * ((0.8 - sharpened) ** 2 + (0.4 - sharpened) ** 2) / 2
    loss = example.consistency_loss(share.log().unsqueeze(1))
    assert float(loss) == pytest.approx(expected)
    monkeypatch.setattr(example, 'EPOCHS', 10)
    y = torch.arange(1_100) % 10
    accuracy = example.compare(torch.randn(1_100, 64) + 8 * torch.eye(64)[y], y, seed=0)
    assert len(accuracy) == 5
    assert min(accuracy.values()) > 90


def test_no_example_hides_a_library():
    """Scripts are found by the name of their file before installed packages are."""
    names = {path.stem for path in EXAMPLES.glob('*.py')}
    assert not names & {'lightning', 'torch', 'sklearn', 'faiss', 'numpy', 'scipy'}
