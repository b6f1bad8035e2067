"""Numbers of the columns of a DataFrame."""

import warnings
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from torch_geometric_gsl.sklearn import (
    GSLClassifier,
    GSLRegressor,
    make_table_transformer,
)

pandas = pytest.importorskip('pandas')
pytestmark = [
    pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning'),
    pytest.mark.filterwarnings('ignore:no signal was found'),
]


@pytest.mark.parametrize('dtype', [object, 'category', 'string'])
def test_columns(dtype):
    category = pandas.Series(['a', 'b', None, 'a'], dtype=dtype)
    frame = pandas.DataFrame({'n': [1.0, np.nan, 3.0, 5.0], 'kind': category})
    frame['flag'] = [True, False, True, True]
    transformer = make_table_transformer()
    encoded = transformer.fit_transform(frame)
    # The median, which number was missing; a, b and none; false and true.
    expected = [
        [1, 0, 1, 0, 0, 0, 1],
        [3, 1, 0, 1, 0, 1, 0],
        [3, 0, 0, 0, 1, 0, 1],
        [5, 0, 1, 0, 0, 0, 1],
    ]
    assert np.array_equal(encoded, expected)
    assert len(transformer.get_feature_names_out()) == 7
    new = frame.iloc[:1].assign(kind=pandas.Series(['new'], dtype=dtype))
    assert transformer.transform(new).tolist() == [[1, 0, 0, 0, 0, 0, 1]]


def frames(columns, dtype=None):
    return [pandas.DataFrame({'a': pandas.Series(c, dtype=dtype)}) for c in columns]


def held_as(*gap):
    """Numbers, and the same held by objects of several kinds."""
    kinds = [Decimal, Fraction, np.float32, np.float64]
    objects = [[*map(convert, (0.5, 2.0, 4.0)), *gap] for convert in kinds]
    objects += [[0.5, 2, np.int8(4), *gap], [0.5, 2, 4, *[None for _ in gap]]]
    nullable = [[0.5, 2, 4, *[pandas.NA for _ in gap]]]
    return (
        frames([[0.5, 2.0, 4.0, *gap]])
        + frames(objects, object)
        + frames(nullable, 'Float64')
    )


ZONE = timezone(timedelta(hours=2))
TIMES = [datetime(1970, 1, 1, 2), datetime(1970, 1, 2, 2)]
IN_ZONE = [datetime(1970, 1, day, 4, tzinfo=ZONE) for day in (1, 2)]
DAYS = [timedelta(days=1), timedelta(days=5), timedelta(days=2)]


@pytest.mark.parametrize(
    ('tables', 'expected'),
    [
        (held_as(), [[0.5], [2], [4]]),
        (held_as(np.nan), [[0.5, 0], [2, 0], [4, 0], [2, 1]]),
        # Columns of several kinds are categories.
        (frames([[True, False, 'x']]), [[0, 1, 0], [1, 0, 0], [0, 0, 1]]),
        (frames([[1000, '1001', 'x'], [1, 2.5, 'x'], [1, 2.5, True]]), np.eye(3)),
        # Durations and dates are seconds.
        (frames([DAYS]) + frames([DAYS], object), [[86400], [432000], [172800]]),
        (frames([TIMES, IN_ZONE]) + frames([TIMES], object), [[7200], [93600]]),
        (frames([[date(1970, 1, 2), None]]), [[86400, 0], [86400, 1]]),
    ],
)
def test_numbers_whatever_holds_them(tables, expected):
    for table in tables:
        encoded = make_table_transformer().fit_transform(table)
        np.testing.assert_array_equal(encoded, expected)


def test_durations_stay_durations():
    frame = pandas.DataFrame({'stay': pandas.to_timedelta([1, 2, 5, None], unit='D')})
    transformer = make_table_transformer().fit(frame)
    with pytest.raises(ValueError, match=r"'stay' must hold durations, .*\(got 1.0\)"):
        transformer.transform(frame.assign(stay=[1.0, 2, 3, 4]))
    assert transformer.transform(frame.assign(stay=None))[0].tolist() == [172800, 1]


@pytest.mark.parametrize('empty', [None, np.nan, pandas.NaT, pandas.NA])
@pytest.mark.parametrize('later', [[1e6, 2e6], ['u', 'v'], [True, False]])
def test_columns_empty_in_training_and_filled_later(empty, later):
    frame = pandas.DataFrame({'n': [1.0, 2.0], 'e': [empty, empty]})
    transformer = make_table_transformer().fit(frame)
    assert transformer.transform(frame).tolist() == [[1, 1], [2, 1]]
    assert transformer.transform(frame.assign(e=later)).tolist() == [[1, 0], [2, 0]]
    names = ['n', 'missingindicator_e']
    assert transformer.get_feature_names_out().tolist() == names
    # The other way round.
    full = make_table_transformer().fit(frame.assign(e=later))
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', "column 'e' has gaps in 2 rows")
        assert np.isfinite(full.transform(frame)).all()


def test_types_that_drift():
    train = pandas.DataFrame({'code': pandas.Categorical([1, 2, 1]), 'own': [1, 0, 1]})
    train['own'] = train['own'] == 1
    transformer = make_table_transformer().fit(train)
    expected = transformer.transform(train)
    for code in (['1', '2', '1'], [1.0, 2.0, 1.0], [1, 2, 1]):
        later = train.assign(code=code, own=['True', 'False', 'True'])
        assert np.array_equal(transformer.transform(later), expected)
    text = "column 'own' holds int, but held bool in training: 3 of its 3 values"
    with pytest.warns(UserWarning, match=text) as caught:
        encoded = transformer.transform(train.assign(own=[1, 0, 1]))
    assert caught[0].filename == __file__
    assert (encoded[:, 2:] == 0).all()
    table = pandas.DataFrame({'k': ['1.0', '2.0', '2.5', '1.0']})
    transformer = make_table_transformer().fit(table)
    text = "column 'k' holds float, but held str in training: 3 of its 4 values are"
    with pytest.warns(UserWarning, match=text):
        assert transformer.transform(table.astype({'k': float})).sum() == 1
    new = pandas.DataFrame({'k': ['1.0', '7']})  # Of the same type no word is said.
    assert transformer.transform(new).sum() == 1
    numbers = make_table_transformer().fit(pandas.DataFrame({'n': [0.5, 1, 2]}))
    for n in (['0.5', '1', '2'], pandas.Series([0.5, True, '2'], dtype=object)):
        encoded = numbers.transform(pandas.DataFrame({'n': n}))
        assert encoded.tolist() == [[0.5], [1], [2]]


@pytest.mark.parametrize(
    ('values', 'error', 'text'),
    [
        ([1, np.inf], ValueError, r"'zz9' must hold finite .*\(got inf.* in row 1\)"),
        ([1, 10**400], ValueError, "'zz9' must hold finite numbers"),
        ([[1], [2]], TypeError, r"'zz9' must hold numbers, strings.* \(got list\)"),
        ([1j, 2], TypeError, r"'zz9' must hold .* \(got complex\)"),
    ],
)
def test_errors_name_the_column(values, error, text, few):
    frame = pandas.DataFrame({'a': [1, 2], 'zz9': pandas.Series(values, dtype=object)})
    for model in (make_table_transformer(), GSLClassifier('none', **few)):
        with pytest.raises(error, match=text):
            model.fit(frame, [0, 1])


def test_columns_are_found_by_name():
    frame = pandas.DataFrame({'a': [1, 2], 'b': ['u', 'v']})
    transformer = make_table_transformer().fit(frame)
    expected = transformer.transform(frame)
    encoded = transformer.transform(frame[['b', 'a']].assign(c=object()))
    assert np.array_equal(encoded, expected)
    with pytest.warns(UserWarning, match='X does not have valid feature names'):
        assert np.array_equal(transformer.transform(frame.to_numpy()), expected)
    with pytest.raises(ValueError, match=r"columns are missing: \['b'\]"):
        transformer.transform(frame[['a']])
    with pytest.raises(ValueError, match=r"'a' must hold numbers, .*'x'"):
        transformer.transform(frame.assign(a=['x', '1']))
    names = make_table_transformer().fit(pandas.DataFrame({0: [1, 2], 1: ['u', 'v']}))
    assert names.get_feature_names_out().tolist() == ['x0', 'x1_u', 'x1_v']


@pytest.mark.parametrize('library', ['pandas', 'polars', 'array'])
def test_frames_of_every_kind(library):
    columns = {'n': [1.5, None, 3.5, 4.5], 'c': ['u', 'v', None, 'u']}
    columns |= {'f': [True, False, True, None], 't': [timedelta(1)] * 3 + [None]}
    frame = pandas.DataFrame(columns)
    expected = make_table_transformer().fit_transform(frame.astype({'n': float}))
    if library == 'polars':
        frame = pytest.importorskip('polars').DataFrame(columns)
    elif library == 'array':
        frame = np.array(list(columns.values()), dtype=object).T
    assert np.array_equal(make_table_transformer().fit_transform(frame), expected)


@pytest.mark.parametrize('library', ['pandas', 'polars'])
@pytest.mark.parametrize('make', [GSLClassifier, GSLRegressor])
def test_estimators_take_frames(library, make, few):
    random = np.random.default_rng(0)
    value = random.normal(size=80)
    columns = {
        'n': np.where(np.arange(80) % 9 == 0, np.nan, value),
        'kind': np.where(value > 0, 'high', 'low'),
        'flag': random.random(80) > 0.5,
    }
    frame, y = pytest.importorskip(library).DataFrame(columns), (value > 0).astype(int)
    model = make('none', **few | {'max_iter': 60}).fit(frame[:60], y[:60])
    assert model.score(frame[60:], y[60:]) > 0.8
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == ['n', 'kind', 'flag']
    names = ['kind', 'flag', 'n']
    assert np.array_equal(model.predict(frame[names]), model.predict(frame))
    with pytest.raises(ValueError, match=r'feature names should match|missing'):
        model.predict(frame[['kind', 'n']])


def test_frames_of_single_precision(few):
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 3)).astype(np.float32)
    y = x[:, 0] > 0
    models = [GSLClassifier('none', **few) for _ in range(2)]
    probabilities = [
        model.fit(rows, y).predict_proba(rows)
        for model, rows in zip(models, (x, pandas.DataFrame(x)), strict=True)
    ]
    assert probabilities[0].dtype == probabilities[1].dtype == np.float32
    assert np.array_equal(*probabilities)


@pytest.mark.parametrize(
    ('value', 'error', 'text'),
    [
        (np.nan, ValueError, r'column 1: .*NaN.* make_table_transformer\(\)'),
        (None, ValueError, r'column 1: .*NaN.* make_table_transformer\(\)'),
        ('x', ValueError, r'column 1: .*make_table_transformer\(\)'),
        (date(2020, 1, 1), TypeError, 'column 1: float.. argument'),
        (timedelta(1), TypeError, 'column 1: float.. argument'),
        ([1, 2], ValueError, 'column 1 must hold numbers, strings'),
        (float('inf'), ValueError, 'column 1 must hold finite numbers'),
    ],
)
def test_errors_of_arrays_name_the_column(value, error, text):
    x = np.ones((20, 2), dtype=object)
    for row in range(20 if isinstance(value, list) else 3):
        x[row, 1] = value
    with pytest.raises(error, match=text):
        GSLClassifier('learned', max_iter=1).fit(x, [0, 1] * 10)
    model = GSLClassifier('learned', max_iter=1).fit(np.eye(20)[:, :2], [0, 1] * 10)
    with pytest.raises(error, match=text):
        model.predict(x)


@pytest.mark.filterwarnings('ignore:Determining the column names')
@pytest.mark.filterwarnings('ignore:Resolving the schema')
@pytest.mark.filterwarnings('ignore:Determining the data types')
def test_tables_of_polars_that_are_none():
    polars = pytest.importorskip('polars')
    nested = polars.DataFrame({'a': [1.0, 2.0], 's': [{'u': 1, 'v': 2}] * 2})
    with pytest.raises(TypeError, match="column 's' must hold one value per row"):
        make_table_transformer().fit(nested)
    with pytest.raises(TypeError, match="call 'collect'"):
        make_table_transformer().fit(nested.lazy())


def test_a_column_that_names_the_rows_is_told():
    frame = pandas.DataFrame({'id': [f'r{i}' for i in range(240)]})
    with pytest.warns(UserWarning, match="column 'id' has 240 distinct strings"):
        make_table_transformer().fit(frame)
    days = pandas.date_range('2023-07-26', periods=495).astype(str)
    frame = pandas.DataFrame({'sold': [*days, *days[:205]]})
    with pytest.warns(UserWarning, match="'sold'") as caught:
        make_table_transformer().fit(frame)
    assert str(caught[0].message) == (
        "column 'sold' has 495 distinct strings in 700 rows (such as '2023-07-26'), "
        'each of which becomes a column: convert dates with pandas.to_datetime '
        '(dayfirst=True for 26.4.2021)'
    )


@pytest.mark.parametrize(
    ('texts', 'advice'),
    [
        (['2021-04', '2021-05', '2021-06', None] * 9, 'pandas.to_datetime'),
        (['3.4.2021', '4/14/2021', '2021-04-26T09:30'] * 9, 'pandas.to_datetime'),
        ([f'{i},5' for i in range(200)] + ['n.a.', None], 'pandas.to_numeric'),
        ([f'text {i}' for i in range(200)], 'count the words'),
    ],
)
def test_advice_for_texts(texts, advice):
    with pytest.warns(UserWarning, match=f'becomes a column: .*{advice}'):
        make_table_transformer().fit(pandas.DataFrame({'a': texts}))


NO_DATES = [
    '1.2.3 1.2.4 2.0.0',
    '2018-19 2019-20 2020-21',
    '10.0.0.1 10.0.0.2 10.0.0.3',
]
NO_DATES += [
    '50-00-0 64-17-5 67-56-1',
    '2021-01-AB 2021-02-AC 2021-03-AD',
    '2021 2022 2023',
]


@pytest.mark.parametrize('texts', NO_DATES)
def test_strings_that_are_no_dates(texts, recwarn):
    make_table_transformer().fit(pandas.DataFrame({'a': texts.split() * 9}))
    dates = pandas.Series(['2021-04', '2021-05', '2021-06'] * 9, dtype='category')
    make_table_transformer().fit(pandas.DataFrame({'a': dates}))
    assert [str(warning.message) for warning in recwarn] == []


def test_gaps_that_training_lacks_are_told():
    model = make_table_transformer().fit(pandas.DataFrame({'a': [1.0, 2.0, 4.0]}))
    text = "column 'a' has gaps in 1 rows, but had none in training: the median repl"
    with pytest.warns(UserWarning, match=text):
        encoded = model.transform(pandas.DataFrame({'a': [None, 4.0]}))
    assert encoded.tolist() == [[2.0], [4.0]]
