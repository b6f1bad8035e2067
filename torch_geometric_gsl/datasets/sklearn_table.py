from __future__ import annotations

import os.path as osp
from collections.abc import Callable

from torch_geometric.data import Data

from torch_geometric_gsl._checks import check_flag, check_option
from torch_geometric_gsl.datasets._feature_table import FeatureTable
from torch_geometric_gsl.datasets.table_file import standardize_columns

_CLASS_NAMES = {
    'digits': tuple('0123456789'),
    'wine': ('class_0', 'class_1', 'class_2'),
    'breast_cancer': ('malignant', 'benign'),
}


class SklearnTable(FeatureTable):
    r"""The real tables of features that `scikit-learn ships with
    <https://scikit-learn.org/stable/datasets/toy_dataset.html>`_: each row is
    a node, and there are no edges. Nothing is downloaded.

    Args:
        root (str): The folder in which the dataset is saved.
        name (str): The name of the table (:obj:`"digits"`, :obj:`"wine"` or
            :obj:`"breast_cancer"`).
        standardize (bool, optional): Whether to scale every column to zero
            mean and unit variance; constant columns become zero.
            (default: :obj:`True`)
        transform (callable, optional): Applied to the data object before every
            access. (default: :obj:`None`)
        pre_transform (callable, optional): Applied to the data object before
            it is saved to disk. (default: :obj:`None`)
        force_reload (bool, optional): Whether to process the raw data again.
            (default: :obj:`False`)

    **STATS:**

    =============  ======  =========  ========
    Name           #nodes  #features  #classes
    =============  ======  =========  ========
    digits          1,797         64        10
    wine              178         13         3
    breast_cancer     569         30         2
    =============  ======  =========  ========

    Raises:
        ValueError: If :obj:`name` is unknown.
        TypeError: If :obj:`standardize` is not a bool.
        ImportError: If scikit-learn is not installed.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as root:
        ...     dataset = SklearnTable(root, 'wine')
        >>> dataset[0]
        Data(x=[178, 13], y=[178])
        >>> dataset.class_names
        ('class_0', 'class_1', 'class_2')
    """

    def __init__(
        self,
        root: str,
        name: str,
        standardize: bool = True,
        transform: Callable[[Data], Data] | None = None,
        pre_transform: Callable[[Data], Data] | None = None,
        force_reload: bool = False,
    ) -> None:
        check_option(name, _CLASS_NAMES, 'name')
        check_flag(standardize, 'standardize')
        self.name = name
        self.standardize = standardize
        super().__init__(root, transform, pre_transform, force_reload)

    @property
    def class_names(self) -> tuple[str, ...]:
        r"""Return the classes' names, in the order of their labels."""
        return _CLASS_NAMES[self.name]

    @property
    def raw_file_names(self) -> list[str]:
        return []

    @property
    def processed_dir(self) -> str:
        # A folder of its own for each setting, lest one is read as the other.
        setting = 'standardized' if self.standardize else 'original'
        return osp.join(self.root, self.name, setting, 'processed')

    def process(self) -> None:
        datasets = self._import_sklearn('sklearn.datasets')
        table = getattr(datasets, f'load_{self.name}')()
        x = standardize_columns(table.data) if self.standardize else table.data
        self._save_table(x, table.target, self.name)

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.name!r}, standardize={self.standardize})'
        )
