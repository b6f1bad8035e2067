import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
# Every link to the project begins with it. It stands for a public home to come: no
# command may need it.
URL = 'https://github.com/torch-geometric-gsl/torch_geometric_gsl'


def read_version() -> str:
    """Return the version that the package's source gives, without importing it."""
    source = (ROOT / 'torch_geometric_gsl' / '__init__.py').read_text(encoding='utf-8')
    match = re.search(r"^__version__ = '([^']+)'$", source, flags=re.MULTILINE)
    if match is None:
        raise RuntimeError("'torch_geometric_gsl/__init__.py' has no '__version__'")
    return match.group(1)


# The oldest versions that the tests were run with, under Python 3.10. NumPy and tqdm
# come with PyTorch Geometric.
install_requires = ['torch>=2.6', 'torch-geometric>=2.6']

# Source distributions only: they need torch first and no build isolation.
sparse_requires = ['torch-scatter', 'torch-sparse']
datasets_requires = ['scikit-learn']
sklearn_requires = ['scikit-learn>=1.6', 'rtdl_num_embeddings']
plot_requires = ['matplotlib']

extras_require = {
    'sparse': sparse_requires,
    'datasets': datasets_requires,
    'sklearn': sklearn_requires,
    'plot': plot_requires,
    'lightning': ['lightning'],
    'full': sparse_requires + datasets_requires + sklearn_requires + plot_requires,
    'test': [
        'hypothesis',
        'onnxruntime',
        'onnxscript',
        'pandas',
        'polars',
        'pyarrow',
        'pytest>=9.0',
        'pytest-cov',
        'pytest-xdist',
        'pyyaml',
        'rtdl_num_embeddings',
        'selenium',
        # As in `pyproject.toml`: a test reads the metadata that it writes.
        'setuptools>=77',
    ],
    'docs': [
        'furo',
        'matplotlib',
        # Of the gallery, whose first page has a DataFrame.
        'pandas',
        'rtdl_num_embeddings',
        'scikit-learn',
        'sphinx',
        'sphinx-copybutton',
        'sphinx-gallery>=0.22',
        # Formulas without a network.
        'sphinx-mathjax-offline',
    ],
    # A minor version of either tool can reject code that the last one accepted.
    'lint': ['mypy>=2.4,<2.5', 'ruff>=0.17.5,<0.18'],
}

setup(
    name='torch_geometric_gsl',
    version=read_version(),
    description='Graph structure learning for PyTorch Geometric',
    long_description=(ROOT / 'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    author='torch_geometric_gsl contributors',
    url=URL,
    project_urls={
        'Documentation': f'{URL}/tree/main/docs',
        'Changelog': f'{URL}/blob/main/CHANGELOG.md',
        'Source': URL,
        'Issues': f'{URL}/issues',
    },
    # Of PEP 639: it takes the place of a classifier.
    license_expression='MIT',
    license_files=['LICENSE'],
    keywords=[
        'deep-learning',
        'geometric-deep-learning',
        'graph-neural-networks',
        'graph-structure-learning',
        'pytorch',
    ],
    classifiers=[
        'Development Status :: 3 - Alpha',
        'Intended Audience :: Science/Research',
        'Operating System :: OS Independent',
        'Programming Language :: Python :: 3',
        'Programming Language :: Python :: 3 :: Only',
        'Programming Language :: Python :: 3.10',
        'Programming Language :: Python :: 3.11',
        'Programming Language :: Python :: 3.12',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
        'Typing :: Typed',
    ],
    python_requires='>=3.10',
    install_requires=install_requires,
    extras_require=extras_require,
    packages=find_packages(include=['torch_geometric_gsl*']),
    package_data={
        'torch_geometric_gsl': ['py.typed'],
        'torch_geometric_gsl.datasets': ['*.json'],
        'torch_geometric_gsl.ops._native': ['*.cpp', '*.h'],
        'torch_geometric_gsl.visualization': ['assets/*'],
    },
    zip_safe=False,
)
