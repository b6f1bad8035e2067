"""Numbers of the columns of a DataFrame."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline

from torch_geometric_gsl.sklearn import GSLClassifier, make_table_transformer

pandas = pytest.importorskip('pandas')
FEW = {'hidden_channels': 16, 'random_state': 0, 'max_iter': 20, 'learning_rate': 0.05}


@pytest.mark.parametrize('dtype', [object, 'category', 'string'])
def test_columns(dtype):
    kind = pandas.Series(['a', 'b', None, 'a'], dtype=dtype)
    frame = pandas.DataFrame({'n': [1.0, np.nan, 3.0, 5.0], 'kind': kind})
    frame['flag'] = [True, False, True, True]
    transformer = make_table_transformer()
    found = transformer.fit_transform(frame)
    # The median, which number was missing; a, b and none; false and true.
    expected = [
        [1, 0, 1, 0, 0, 0, 1],
        [3, 1, 0, 1, 0, 1, 0],
        [3, 0, 0, 0, 1, 0, 1],
        [5, 0, 1, 0, 0, 0, 1],
    ]
    assert np.array_equal(found, expected)
    assert len(transformer.get_feature_names_out()) == 7
    new = frame.iloc[:1].assign(kind=pandas.Series(['new'], dtype=dtype))
    assert transformer.transform(new).tolist() == [[1, 0, 0, 0, 0, 0, 1]]


def test_pipelines():
    x, y = load_wine(return_X_y=True)
    frame = pandas.DataFrame(x[:, :4], columns=list('abcd'))
    frame['b'] = frame['b'].where(np.arange(len(frame)) % 7 > 0)
    frame['kind'] = np.where(y == 0, 'first', 'other')
    frame.loc[3, 'kind'] = None
    frame['flag'] = y == 1
    model = make_pipeline(make_table_transformer(), GSLClassifier('learned', **FEW))
    model.fit(frame, y)
    assert model.score(frame, y) > 0.9
    new = frame.iloc[:2].assign(kind='never seen')
    assert model.predict(new).shape == (2,)
