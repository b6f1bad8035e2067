"""The metadata, the source archive and the workflows agree with one another."""

import re
import subprocess
import sys
from email.parser import Parser
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import torch_geometric_gsl

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / '.github' / 'workflows').glob('*.yml'))
# What serves the repository alone.
LEFT_OUT = re.compile(
    r'\.(ci|github)/|\.gitignore|\.(pre-commit-config|readthedocs)\.yaml'
)


@pytest.fixture(scope='module')
def distribution(tmp_path_factory):
    """What would be published."""
    folder = tmp_path_factory.mktemp('distribution')
    command = [sys.executable, 'setup.py', '-q', 'egg_info', '--egg-base', folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (egg_info,) = folder.iterdir()
    metadata = Parser().parsestr((egg_info / 'PKG-INFO').read_text(encoding='utf-8'))
    files = (egg_info / 'SOURCES.txt').read_text(encoding='utf-8').splitlines()
    urls = dict(line.split(', ') for line in metadata.get_all('Project-URL'))
    return SimpleNamespace(metadata=metadata, files=set(files), home=urls['Homepage'])


@pytest.fixture(scope='module')
def tracked():
    if not (ROOT / '.git').exists():
        pytest.skip('this is no checkout of the repository')
    command = ['git', '-C', str(ROOT), 'ls-files', '-z']
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.split('\0') if (ROOT / name).is_file()]


def read(name):
    return (ROOT / name).read_text(encoding='utf-8')


def test_the_archive_holds_what_the_repository_holds(distribution, tracked):
    expected = {name for name in tracked if not LEFT_OUT.match(name)}
    assert expected - distribution.files == set()
    assert {name for name in distribution.files if LEFT_OUT.match(name)} == set()


def test_the_wheel_holds_what_the_package_reads(tracked, tmp_path):
    command = [sys.executable, 'setup.py', '-q', 'egg_info', '--egg-base', tmp_path]
    command += ['build_py', '--build-lib', tmp_path / 'lib']
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    built = [path for path in (tmp_path / 'lib').rglob('*') if path.is_file()]
    in_wheel = {path.relative_to(tmp_path / 'lib').as_posix() for path in built}
    expected = {name for name in tracked if name.startswith('torch_geometric_gsl/')}
    assert 'torch_geometric_gsl/visualization/assets/vendor.js' in expected
    assert expected - in_wheel == set()


def test_metadata(distribution):
    metadata = distribution.metadata
    assert metadata['Version'] == torch_geometric_gsl.__version__
    assert metadata['License-Expression'] == 'MIT'
    classifiers = metadata.get_all('Classifier', [])
    assert not [name for name in classifiers if name.startswith('License')]
    pythons = re.findall(r':: (3\.\d+)$', '\n'.join(classifiers), re.MULTILINE)
    assert metadata['Requires-Python'] == f'>={pythons[0]}'
    assert pythons == [f'3.{minor}' for minor in range(10, 10 + len(pythons))]


def test_the_version_is_the_same_everywhere(tracked):
    version = torch_geometric_gsl.__version__
    assigned = re.compile(
        rf'^_*version_* *= *[\'"]{re.escape(version)}\b', re.MULTILINE
    )
    files = [name for name in tracked if name.endswith(('.py', '.toml'))]
    assigning = [name for name in files if assigned.search(read(name))]
    assert assigning == ['torch_geometric_gsl/__init__.py']
    citation = yaml.safe_load(read('CITATION.cff'))
    recipe = yaml.safe_load(read('conda/recipe.yaml'))
    assert citation['version'] == recipe['context']['version'] == version
    assert f'## [{version}] - {citation["date-released"]}\n' in read('CHANGELOG.md')


def test_the_conda_recipe_has_the_same_requirements(distribution):
    recipe = yaml.safe_load(read('conda/recipe.yaml'))
    names = {'torch': 'pytorch', 'torch-geometric': 'pytorch_geometric'}
    metadata = distribution.metadata
    needed = [line for line in metadata.get_all('Requires-Dist') if ';' not in line]
    requirements = [re.fullmatch(r'([\w-]+)(.*)', line).groups() for line in needed]
    expected = {f'{names[name]} {bound}' for name, bound in requirements}
    expected.add(f'python {metadata["Requires-Python"]}')
    assert {*recipe['requirements']['run']} == expected
    setuptools = (
        read('pyproject.toml').split('requires = ["setuptools')[1].split('"')[0]
    )
    assert f'setuptools {setuptools}' in recipe['requirements']['host']
    assert recipe['about']['license'] == metadata['License-Expression']
    assert recipe['about']['repository'] == distribution.home


def steps(workflow):
    return [step for job in workflow['jobs'].values() for step in job.get('steps', [])]


@pytest.mark.parametrize('path', WORKFLOWS, ids=lambda path: path.stem)
def test_workflow(path):
    workflow = yaml.safe_load(path.read_text(encoding='utf-8'))
    targets = set(re.findall(r'^([a-z-]+):.*## ', read('Makefile'), re.MULTILINE))
    for job in workflow['jobs'].values():
        matrix = job.get('strategy', {}).get('matrix', {})
        assert set(matrix.get('target', [])) <= targets
        assert set(job.get('needs', [])) <= set(workflow['jobs'])
        assert (ROOT / job.get('uses', '')).exists()
    for step in steps(workflow):
        assert re.fullmatch(
            r'[\w-]+/[\w-]+@(v\d+|release/v1)', step.get('uses', 'a/b@v1')
        )
        names = re.findall(r'\bmake ([a-z-]+)', step.get('run', ''))
        assert set(names) <= targets


def test_tests_run_with_the_oldest_and_the_newest_versions(distribution):
    if not WORKFLOWS:
        pytest.skip('the source archive has no workflows')
    matrix = yaml.safe_load(read('.github/workflows/tests.yml'))
    matrix = matrix['jobs']['test']['strategy']['matrix']
    requirements = distribution.metadata.get_all('Requires-Dist', [])
    oldest = re.findall(r'^torch>=(.*)$', '\n'.join(requirements), re.MULTILINE)
    newest = re.findall(r'^TORCH .*==(.*)$', read('Makefile'), re.MULTILINE)
    lowest, highest = matrix['torch']
    assert [lowest, highest] == [f'{oldest[0]}.0', newest[0]]
    assert matrix['python'][0] == distribution.metadata['Requires-Python'][2:]
    # One line of constraints for each, of requirements without a space.
    pins = {each['torch']: each['constraints'].split() for each in matrix['include']}
    names = {v: [re.split('[<=]', word)[0] for word in pins[v]] for v in pins}
    assert names == {each: ['torch-geometric'] for each in (lowest, highest)}


def test_no_command_needs_the_address(distribution, tracked):
    address = re.escape(distribution.home.removeprefix('https://'))
    command = re.compile(rf'^ *(\$ )?(pip|git|curl|wget) .*{address}', re.MULTILINE)
    assert command.search(f'pip install git+{distribution.home}')
    pages = [name for name in tracked if re.search(r'\.(md|rst|py)$', name)]
    assert [name for name in pages if command.search(read(name))] == []


def test_links_of_the_readme_lead_somewhere():
    links = re.findall(r'\]\(([^)]*)\)', read('README.md'))
    inside = [link for link in links if not link.startswith('https://')]
    assert 'docs/_static/readme.png' in inside
    assert [link for link in inside if not (ROOT / link).exists()] == []


def test_commands_to_install_work_in_a_clone(distribution, tracked):
    requested = set()
    for name in tracked:
        if name.endswith(('.py', '.rst', '.md')):
            text = (ROOT / name).read_text(encoding='utf-8')
            # Nothing of that name is published.
            assert not re.search(r'torch_geometric_gsl' + r'\[[a-z]', text), name
            requested |= set(re.findall(r"pip install (?:-e )?'\.\[(.+?)\]'", text))
    extras = set(distribution.metadata.get_all('Provides-Extra'))
    assert requested
    assert {extra for names in requested for extra in names.split(',')} <= extras
