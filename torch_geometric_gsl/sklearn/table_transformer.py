from __future__ import annotations

from typing import Any

from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder


def make_table_transformer() -> Any:
    r"""Return a transformer that makes numbers of the columns of a DataFrame.

    Missing numbers become the median of their column, and a column of its own says
    which they were. Categories, texts and booleans become a column for each value; a
    missing one is a value, and one that was not there in training is none.

    Returns:
        sklearn.compose.ColumnTransformer: To stand before an estimator.

    Example:
        >>> from sklearn.pipeline import make_pipeline
        >>> from torch_geometric_gsl.sklearn import GSLClassifier
        >>> model = make_pipeline(make_table_transformer(), GSLClassifier())
    """
    numbers = SimpleImputer(strategy='median', add_indicator=True)
    values = make_pipeline(
        FunctionTransformer(_plain_values, feature_names_out='one-to-one'),
        OneHotEncoder(handle_unknown='ignore', sparse_output=False),
    )
    return make_column_transformer(
        (numbers, make_column_selector(dtype_include='number')),
        (values, make_column_selector(dtype_exclude='number')),
    )


def _plain_values(frame: Any) -> Any:
    """Return columns whose missing values are None, whatever pandas had for them."""
    return frame.astype(object).where(frame.notna(), None)
