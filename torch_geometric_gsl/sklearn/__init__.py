r"""Estimators with learned graphs, with :obj:`fit` and :obj:`predict`.

The estimators need scikit-learn: ``pip install scikit-learn``.
"""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "'torch_geometric_gsl.sklearn' needs scikit-learn: pip install scikit-learn"
    ) from error

from torch_geometric_gsl.sklearn.estimators import GSLClassifier, GSLRegressor
from torch_geometric_gsl.sklearn.table_transformer import make_table_transformer

__all__ = ['GSLClassifier', 'GSLRegressor', 'make_table_transformer']
