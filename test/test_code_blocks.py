"""Every code block of README, CONTRIBUTING and documentation runs when pasted alone.

A block of text right after a block of Python is what it prints: by default this is
compared, and `python test/test_code_blocks.py --write` renews it.
"""

import contextlib
import doctest
import io
import os
import re
import socket
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
import torch

from reproduction.tables_data import california

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / 'README.md',
    ROOT / 'CONTRIBUTING.md',
    *(
        path
        for path in sorted((ROOT / 'docs').rglob('*.rst'))
        if not {'_build', 'auto_gallery', 'generated'} & {*path.parts}
    ),
    *sorted((ROOT / 'paper' / 'docs').glob('*.rst')),
]
#: Libraries of the extras, which a machine may lack.
OPTIONAL = {
    *('faiss', 'matplotlib', 'pandas', 'rtdl_num_embeddings', 'sklearn'),
    *('torch_scatter', 'torch_sparse', 'yacs'),
}
#: test/test_contributing.py runs it, with its two blocks together.
ELSEWHERE = re.compile(
    r'<!-- worked example: begin -->.*?<!-- worked example: end -->', re.S
)
MARKDOWN = re.compile(r'^```(?P<language>\w+)\n(?P<body>.*?)^```$', re.M | re.S)
SPHINX = re.compile(
    r'^(?P<indent> *)\.\. code-block:: (?P<language>\w+)\n(?:(?P=indent) +:.*\n)*\n'
    r'(?P<body>(?:(?P=indent)   .*\n|\n)+)',
    re.M,
)
#: A number with a point may differ: processors round differently.
#: A line of the table that `explain` returns.
NEIGHBOUR = re.compile(r'^(prediction|\d+ ).*$', re.MULTILINE)
FRACTION = re.compile(r'-?\d+\.\d+')
#: Measured seconds differ between machines.
SECONDS = re.compile(r'\d+\.\d+ s$', re.MULTILINE)
#: Scikit-learn's function for California's districts, and their columns.
DOWNLOAD = 'fetch_california_housing'
CALIFORNIA = ['MedInc', 'HouseAge', 'AveRooms', 'AveBedrms']
CALIFORNIA += ['Population', 'AveOccup', 'Latitude', 'Longitude']


class Block(NamedTuple):
    """A block of code, and the span of the text that it should print, if any."""

    path: Path
    line: int
    language: str
    code: str
    output: tuple[int, int] | None = None

    def __str__(self):
        return f'{self.path.relative_to(ROOT)}:{self.line}'


def blocks(path):
    text = path.read_text(encoding='utf-8')
    text = ELSEWHERE.sub(lambda match: re.sub(r'[^\n]', ' ', match[0]), text)

    def line(index):
        return text.count('\n', 0, index) + 1

    code_blocks = []
    end = -1
    for match in (MARKDOWN if path.suffix == '.md' else SPHINX).finditer(text):
        language, code = match['language'], textwrap.dedent(match['body'])
        follows = code_blocks and not text[end : match.start()].strip()
        if language == 'text' and follows and code_blocks[-1].language == 'python':
            code_blocks[-1] = code_blocks[-1]._replace(output=match.span('body'))
        elif '>>> ' not in code:
            code_blocks.append(Block(path, line(match.start()), language, code))
        end = match.end()
    if path.suffix == '.rst':
        code_blocks += [
            Block(path, line(i), 'doctest', code) for i, code in sessions(text)
        ]
    return code_blocks


def sessions(text):
    """Yield the examples with `>>>` that no other text stands between."""
    for match in re.finditer(r'^( *)>>> .*\n(?:\1\S.*\n|\1 .*\n)*', text, re.M):
        yield match.start(), match[0]


ALL = [block for path in PAGES for block in blocks(path)]
RUN = [block for block in ALL if block.language in ('python', 'doctest')]


def trains(block):
    steps = 'optimizer.step()', '.fit(', 'cross_val_score('
    return any(step in block.code for step in steps)


SHELL = [block for block in ALL if block.language in ('bash', 'console', 'shell')]


def california_frame(**options):
    """Return what scikit-learn's function of that name would download."""
    pandas = pytest.importorskip('pandas')
    table = california()
    return pandas.DataFrame(table.x, columns=CALIFORNIA), pandas.Series(table.y)


def run(block):
    """Run a block in an empty folder and an empty namespace; return what it prints."""
    names = {'__name__': '__main__'}
    printed = io.StringIO()
    torch.manual_seed(0)
    home = Path.cwd()
    with contextlib.ExitStack() as stack:
        os.chdir(stack.enter_context(tempfile.TemporaryDirectory()))
        if DOWNLOAD in block.code:
            download = f'sklearn.datasets.{DOWNLOAD}'
            stack.enter_context(mock.patch(download, california_frame))
        try:
            if block.language == 'doctest':
                run_session(block, names)
            else:
                with contextlib.redirect_stdout(printed):
                    exec(compile(block.code, str(block), 'exec'), names)
        finally:
            os.chdir(home)
    return printed.getvalue()


def run_session(block, names):
    test = doctest.DocTestParser().get_doctest(
        block.code, names, str(block), str(block.path), block.line
    )
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    report = []
    runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
    assert not runner.run(test, out=report.append).failed, ''.join(report)


def written(block):
    return textwrap.dedent(block.path.read_text(encoding='utf-8')[slice(*block.output)])


def assert_prints_alike(printed, block):
    """Compare what stands around numbers exactly, and fractions but for rounding."""
    printed, text = (SECONDS.sub('s', output) for output in (printed, written(block)))
    if '.explain(' in block.code:
        # Neighbours of a network that was trained on another machine may be others.
        printed, text = (NEIGHBOUR.sub('', output) for output in (printed, text))
    assert FRACTION.sub('#', printed).split() == FRACTION.sub('#', text).split()
    expected = [float(value) for value in FRACTION.findall(text)]
    values = [float(value) for value in FRACTION.findall(printed)]
    # A difference of the last bit grows while a model with random draws is trained, and
    # most of all in a single network.
    rel = 0.5 if 'n_members=1' in block.code else 0.1
    assert values == pytest.approx(expected, rel=rel if trains(block) else 0.01)


@pytest.mark.filterwarnings('ignore:neighbours are drawn almost uniformly')
@pytest.mark.filterwarnings('ignore:.* rows are far')
@pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without")
@pytest.mark.parametrize(
    'block',
    [
        pytest.param(block, marks=pytest.mark.slow) if trains(block) else block
        for block in RUN
    ],
    ids=str,
)
def test_block_runs_alone(block, monkeypatch, gsl_data):
    monkeypatch.setattr(socket.socket, 'connect', None)  # No block needs a network.
    if DOWNLOAD in block.code:
        gsl_data('tables/cal_housing.data.gz')
    try:
        printed = run(block)
    except ImportError as error:
        # The package's own error names the extra, after that of the library.
        missing = getattr(error.__cause__ or error, 'name', None)
        if missing in OPTIONAL:
            pytest.skip(f"'{missing}' is not installed")
        raise
    if block.output is not None:
        assert_prints_alike(printed, block)


def test_blocks_with_an_output_seed_themselves():
    shown = [block for block in RUN if block.output is not None]
    assert shown[0].path.name == 'README.md'
    seeds = 'torch.manual_seed(', 'random_state='
    assert all(any(seed in block.code for seed in seeds) for block in shown)


@pytest.mark.parametrize('block', SHELL, ids=str)
def test_commands_name_what_exists(block):
    code = re.sub(r'(^|\s)#.*', '', block.code)
    targets = set(re.findall(r'^([a-z-]+):.*## ', read('Makefile'), re.M))
    table = read('pyproject.toml').partition('[project.optional-dependencies]')[2]
    extras = set(re.findall(r'^(\w+) = ', table.partition('\n[')[0], re.M))
    for words in re.findall(r'\bmake((?: +[\w.=-]+)+)', code):
        assert {word for word in words.split() if '=' not in word} <= targets
    for path in re.findall(r'(?:\bpython|\bbash|-m pytest) +([\w./]+)', code):
        assert (ROOT / path).exists(), path
    for line in re.findall(r'\bpip install .*', code):
        for names in re.findall(r"\[([\w,]+)\]'?", line):
            assert set(names.split(',')) <= extras


def read(name):
    return (ROOT / name).read_text(encoding='utf-8')


def write():
    """Put below each block that has an output what it prints now."""
    for path in PAGES:
        text = path.read_text(encoding='utf-8')
        # From the last one on, so that the others stay where they are.
        for block in reversed([b for b in blocks(path) if b.output is not None]):
            start, stop = block.output
            shortest = min(re.findall(r'^ *(?=\S)', text[start:stop], re.M), key=len)
            shown = re.sub(r' +$', '', run(block), flags=re.M)
            printed = textwrap.indent(shown, shortest)
            tail = '\n' if path.suffix == '.rst' else ''
            text = f'{text[:start]}{printed}{tail}{text[stop:]}'
        path.write_text(text, encoding='utf-8')


if __name__ == '__main__':
    os.environ.setdefault('MPLBACKEND', 'Agg')
    if sys.argv[1:] != ['--write']:
        sys.exit('python test/test_code_blocks.py --write')
    write()
