"""Columns and rows go by name, whatever the names are, also through a file."""

import datetime
from decimal import Decimal
from fractions import Fraction
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.pipeline import make_pipeline

from torch_geometric_gsl.sklearn import GSLRegressor, make_table_transformer
from torch_geometric_gsl.sklearn._columns import distinct
from torch_geometric_gsl.sklearn._saving import decode, encode

pytestmark = [
    pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning'),
    pytest.mark.filterwarnings('ignore:no signal was found'),
    pytest.mark.filterwarnings('ignore:X does not have valid feature names'),
    # Training rows are explained.
    pytest.mark.filterwarnings('ignore:.row. equals the training rows'),
]

BRIEF = {'n_members': 1, 'hidden_channels': 8, 'max_iter': 2, 'random_state': 0}
X = np.random.default_rng(0).normal(size=(60, 4))
Y = X @ [1.0, -2.0, 0.5, 0.0]
DAYS = pandas.date_range('2020', periods=4)
NAMES = {
    'integers': [3, 1, 0, 2],
    'floats': [0.1, 0.2, np.nan, 0.3],
    'mixed': ['a', 1, None, (2, 'b')],
    'tuples': pandas.MultiIndex.from_tuples(
        [('a', 1), ('a', np.nan), ('b', 1), (0, 0)]
    ),
    'dates': DAYS,
    'zones': DAYS.tz_localize('Europe/Berlin'),
    'months': pandas.period_range('2020-01', periods=4, freq='M'),
    'durations': pandas.timedelta_range('1h', periods=4),
    'intervals': pandas.interval_range(0, 4),
    'days': [date.date() for date in DAYS],
    'pairs of days': pandas.MultiIndex.from_product([['a'], DAYS]),
    'attributes': ['sparse', 'shape', 'index', 'columns'],
    'of tables': ['weight', 'target', 'weight_', 'row'],
    'texts': ['', ' ', 'nan', 'None'],
}


@pytest.mark.parametrize('case', NAMES)
def test_columns_go_by_name(case, tmp_path):
    frame = pandas.DataFrame(X, columns=NAMES[case])
    reordered = frame.iloc[:, ::-1]
    renamed = pandas.Index(['new', *list(frame)[1:]], tupleize_cols=False)
    model = GSLRegressor('learned', **BRIEF).fit(frame, Y)
    model.save(tmp_path / 'model.pt')
    expected = model.predict(frame)
    for twin in (model, GSLRegressor.load(tmp_path / 'model.pt')):
        np.testing.assert_array_equal(twin.predict(frame), expected)
        np.testing.assert_array_equal(twin.predict(reordered), expected)
        table = twin.explain(reordered[:1])
        np.testing.assert_array_equal(table.iloc[0, 2:].astype(float), X[0])
        assert len(set(map(str, table.columns))) == 6
        twin.explore(tmp_path / 'graph.html')
        # Not by position if a name is missing, or if all have other names.
        for names in (renamed, [*'wxyz']):
            with pytest.raises(ValueError, match=r'columns are missing: .*to_numpy'):
                twin.predict(frame.set_axis(names, axis=1))
        np.testing.assert_array_equal(twin.predict(frame.to_numpy()), expected)
    encoder = make_table_transformer().fit(frame)
    np.testing.assert_array_equal(encoder.transform(reordered), X)
    with pytest.raises(ValueError, match='columns are missing'):
        encoder.transform(frame.set_axis(renamed, axis=1))


@pytest.mark.parametrize('name', [np.nan, ('a', np.nan), 3])
def test_repeated_names(name):
    names = pandas.Index([name] * 2, tupleize_cols=False)
    frame = pandas.DataFrame(X[:, :2], columns=names)
    for model in (GSLRegressor('none', **BRIEF), make_table_transformer()):
        with pytest.raises(ValueError, match=r"'X' must have distinct column names"):
            model.fit(frame, Y)


@pytest.mark.parametrize(
    'fitted', [GSLRegressor('none', **BRIEF), make_table_transformer()]
)
def test_a_column_of_training_that_comes_twice(fitted):
    frame = pandas.DataFrame(X, columns=[*'abcd'])
    method = getattr(
        fitted.fit(frame, Y), 'predict', getattr(fitted, 'transform', None)
    )
    twice = pandas.concat([frame, 100 * frame[['a']]], axis=1)
    with pytest.raises(
        ValueError, match=r"distinct column names \(got \['a'\] twice\)"
    ):
        method(twice)
    # Other columns do not count.
    wider = pandas.concat([frame, frame[['a']].set_axis(['e'], axis=1)] * 2, axis=1)
    wider = wider.iloc[:, [0, 1, 2, 3, 4, 9]]
    np.testing.assert_array_equal(method(wider), method(frame))


ROWS = {
    'dates': pandas.date_range('2020', periods=60),
    'zone': pandas.date_range('2020-03-28', periods=60, tz='Europe/Berlin', freq='h'),
    'offset': pandas.date_range('2020', periods=60, tz=datetime.timezone.utc),
    'pairs': pandas.MultiIndex.from_product([range(6), range(10)]),
    'months': pandas.period_range('2001-01', periods=60, freq='M'),
    'durations': pandas.timedelta_range('1h', periods=60),
    'intervals': pandas.interval_range(0, 60),
    'texts': [f'r{i}' for i in range(60)],
    'numbers': np.arange(60)[::-1] * 10,
    'quarters': np.arange(60) / 4,
    'equal': [0] * 60,
}


@pytest.mark.parametrize('case', ROWS)
def test_labels_of_rows_find_them(case, tmp_path):
    frame = pandas.DataFrame(X, columns=[*'abcd'], index=ROWS[case])
    model = GSLRegressor('learned', **BRIEF).fit(frame, Y)
    model.save(tmp_path / 'model.pt')
    expected = model.explain(frame[:1])
    for twin in (model, GSLRegressor.load(tmp_path / 'model.pt')):
        table = twin.explain(frame[:1])
        assert table.index.equals(expected.index)
        assert [*map(type, table.index)] == [*map(type, expected.index)]
        for label, row in zip(
            table.index[1:], table.iloc[1:, 2:].to_numpy(float), strict=True
        ):
            assert row.tolist() in np.atleast_2d(frame.loc[label]).tolist()


VALUES = [
    *(None, True, 3, 0.25, 'text', ('a', (1, 'b')), Decimal('1.20'), UUID(int=5)),
    *(datetime.date(2020, 1, 2), datetime.time(3, 4), datetime.timedelta(1, 2, 3)),
    *(datetime.time(5, tzinfo=datetime.timezone.utc), datetime.datetime.max, b'xy'),
    datetime.datetime.max.replace(tzinfo=ZoneInfo('America/New_York')),
    datetime.datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo('Europe/Berlin')),
    datetime.datetime(
        2020, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=1))
    ),
    *(np.datetime64(5, 'ns'), np.timedelta64(7, 'ms'), pandas.NaT, pandas.NA),
    pandas.Timestamp('2020-10-25T00:30:00.123456789Z').tz_convert('Europe/Berlin'),
    pandas.Timestamp('2020-01-01T00:00:00+05:30'),
    *(pandas.Timedelta(3, 'ns'), pandas.Period('2020-02', 'M')),
    pandas.Interval(pandas.Timestamp(0), pandas.Timestamp(1), closed='both'),
]


@pytest.mark.parametrize('value', VALUES, ids=repr)
def test_values_keep_their_types(value):
    again = decode(encode((value, 1)))[0]
    assert type(again) is type(value)
    assert again is value or again == value or value is pandas.NaT
    if getattr(value, 'tzinfo', None):
        assert again.utcoffset() == value.utcoffset()


def test_other_values_become_plain_or_are_named():
    assert encode(Fraction(1, 4), as_text=True) == 0.25
    assert encode(frozenset('a'), as_text=True) == "frozenset({'a'})"
    text = r'a file cannot hold the name or class Fraction\(1, 3\) of type Fraction'
    with pytest.raises(TypeError, match=text):
        encode(Fraction(1, 3))


def test_a_name_that_no_file_holds_is_told_before_writing(tmp_path):
    frame = pandas.DataFrame(X, columns=[Fraction(1, n) for n in (2, 3, 4, 5)])
    model = GSLRegressor('none', **BRIEF).fit(frame, Y)
    with pytest.raises(
        TypeError, match=r"Fraction.*convert it, such as by '.map.str.'"
    ):
        model.save(tmp_path / 'model.pt')
    assert not [*tmp_path.iterdir()]


TABLES = {
    'joins': {'city': ['new_york', 'x'] * 30, 'city_new': ['york', 'z'] * 30},
    'gaps': {'missingindicator_a': X[:, 1], 'a': [np.nan, 1.0] * 30},
    'numbers': {'s': ['a', 'b'] * 30, 's_a': X[:, 0], 's_a_': X[:, 1]},
    'texts': {'s': ['a', None] * 30, 'missingindicator_s': X[:, 0]},
}


@pytest.mark.parametrize('case', TABLES)
def test_encoded_names_are_distinct(case):
    frame = pandas.DataFrame(TABLES[case])
    encoder = make_table_transformer().fit(frame)
    names = encoder.get_feature_names_out().tolist()
    assert len({*names}) == len(names) == encoder.transform(frame).shape[1]
    # Columns of numbers keep their names.
    assert {*frame.select_dtypes('number')} <= {*names}
    for output in ('default', 'pandas'):
        model = make_pipeline(make_table_transformer(), GSLRegressor('none', **BRIEF))
        model.set_output(transform=output).fit(frame, Y).predict(frame)


@given(
    st.lists(st.sampled_from(['a', 'a_', 'a__', 'b'])), st.sets(st.sampled_from('ab'))
)
def test_names_become_distinct(names, taken):
    renamed = distinct(names, taken)
    assert len({*renamed}) == len(renamed) == len(names)
    assert not {*renamed} & taken
    for position, (new, old) in enumerate(zip(renamed, names, strict=True)):
        # The first of equal names stays, unless it is taken.
        is_kept = old not in taken and old not in names[:position]
        assert (new == old) == is_kept
        assert new.rstrip('_') == old.rstrip('_')


def test_arrow_dictionaries_are_categories():
    codes = np.arange(60) % 4
    arrow = pandas.arrays.ArrowExtensionArray(pyarrow.array(codes).dictionary_encode())
    plain = make_table_transformer().fit_transform(
        pandas.DataFrame({'k': pandas.Categorical(codes)})
    )
    frame = pandas.DataFrame({'k': arrow})
    np.testing.assert_array_equal(make_table_transformer().fit_transform(frame), plain)
    assert plain.shape == (60, 4)


def test_columns_of_bytes_and_of_times_are_what_they_were(tmp_path):
    frame = pandas.DataFrame(X[:, :2], columns=['a', 'b'])
    frame['bytes'] = np.array([b'xy', b'zw'] * 30)
    frame['times'] = [
        datetime.time(i % 5, tzinfo=datetime.timezone.utc) for i in range(60)
    ]
    model = GSLRegressor('learned', **BRIEF).fit(frame, Y)
    model.save(tmp_path / 'model.pt')
    again = GSLRegressor.load(tmp_path / 'model.pt').explain(frame[:1])
    assert again.equals(model.explain(frame[:1]))


def test_dates_of_polars_are_explained():
    polars = pytest.importorskip('polars')
    days = pandas.date_range('2020', periods=60).to_numpy()
    frame = polars.DataFrame({'a': X[:, 0], 'day': days})
    table = GSLRegressor('learned', **BRIEF).fit(frame, Y).explain(frame[:1])
    assert table['day'].iloc[0] == pandas.Timestamp(days[0])
