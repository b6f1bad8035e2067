"""Which rows are held back: at random, by groups, by order, or by a mask."""

import numpy as np
import pandas
import pytest

from torch_geometric_gsl.sklearn import GSLClassifier, GSLRegressor
from torch_geometric_gsl.sklearn._splits import (
    codes_of,
    group_splits,
    latest_split,
    masked_split,
    random_splits,
)
from torch_geometric_gsl.sklearn._training import Training

pytestmark = [
    pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning'),
    pytest.mark.filterwarnings('ignore:no signal was found'),
]

N = 200
KNOWN = np.arange(N) % 5 > 0


def seeded(seed=0):
    return np.random.RandomState(seed)


def check_split(split, is_known):
    """Labelled rows are trained or held back; neighbours are not held back."""
    train, candidates, val = map(set, (split.train, split.candidates, split.val))
    assert train
    assert train == {row for row in candidates if is_known[row]}
    assert not candidates & val
    assert all(is_known[row] for row in val)


@pytest.mark.parametrize('num_classes', [0, 3])
def test_random_splits(num_classes):
    y = seeded().randint(3, size=N)
    args = KNOWN, 4, 0.2, seeded(), num_classes
    splits = random_splits(y, *args)
    for split in splits:
        check_split(split, KNOWN)
        assert len(split.candidates) + len(split.val) == N
        assert abs(len(split.val) - 0.2 * KNOWN.sum()) <= max(1, num_classes)
    val = np.concatenate([split.val for split in splits])
    assert len(set(val)) == len(val)
    # The same of one seed, others of another.
    again = random_splits(y, *args[:3], seeded(), num_classes)
    by_other_seed = random_splits(y, *args[:3], seeded(1), num_classes)
    assert all(np.array_equal(a.val, b.val) for a, b in zip(splits, again, strict=True))
    assert not np.array_equal(splits[0].val, by_other_seed[0].val)


def test_classes_are_held_back_by_their_share():
    y = np.repeat([0, 1, 2], [120, 77, 3])
    splits = random_splits(y, np.ones(N, dtype=bool), 4, 0.2, seeded(), 3)
    for split in splits:
        assert np.bincount(y[split.val], minlength=3).tolist() == [24, 15, 0]


@pytest.mark.parametrize(
    ('y', 'fraction'), [(np.arange(50) % 2, 0.2), (np.arange(200) < 196, 0.2)]
)
def test_too_few_rows_to_hold_back(y, fraction):
    # Less than twelve rows, or rows of one class.
    is_known = np.ones(len(y), dtype=bool)
    (split,) = random_splits(y.astype(int), is_known, 1, fraction, seeded(), 2)
    assert len(split.val) == 0
    assert len(split.train) == len(y)


@pytest.mark.parametrize(
    ('num_groups', 'num_splits', 'expected'),
    [(2, 1, 2), (3, 1, 3), (5, 1, 5), (9, 1, 5), (40, 1, 1), (40, 4, 4)],
)
def test_whole_groups_are_held_back(num_groups, num_splits, expected):
    group = seeded().randint(num_groups, size=N)
    splits = group_splits(group, KNOWN, num_splits, 0.2, seeded())
    assert len(splits) == expected
    val_groups = []
    for split in splits:
        check_split(split, KNOWN)
        seen = set(group[split.val])
        assert not seen & set(group[split.candidates])
        # Neither do unlabelled rows of a held-back group remain.
        assert len(split.candidates) == N - np.isin(group, [*seen]).sum()
        val_groups += seen
    assert len(set(val_groups)) == len(val_groups)
    if num_groups < 10:
        assert set(val_groups) == set(range(num_groups))
    else:
        sizes = [len(split.val) for split in splits]
        assert max(sizes) - min(sizes) <= np.bincount(group).max()
        assert abs(np.mean(sizes) - 0.2 * KNOWN.sum()) < 8


def test_groups_of_uneven_sizes_are_shared_out_evenly():
    group = np.repeat(np.arange(14), [60, 40, 40, 10, 10, 10, *[5] * 6, 0, 0])
    group = np.append(group, [12, 13])
    is_known = np.append(np.ones(len(group) - 2, dtype=bool), [False, False])
    splits = group_splits(group, is_known, 5, 0.2, seeded())
    assert sorted(len(split.val) for split in splits) == [30, 30, 40, 40, 60]


def test_the_latest_rows_are_held_back():
    order = seeded().permutation(N)
    split = latest_split(order, KNOWN, 0.2)
    check_split(split, KNOWN)
    assert len(split.val) == 0.2 * KNOWN.sum()
    assert order[split.candidates].max() < order[split.val].min()
    # Rows of one time stay together, and unlabelled ones of a later time go.
    order = np.arange(N) // 30
    split = latest_split(order, KNOWN, 0.2)
    check_split(split, KNOWN)
    assert set(order[split.val]) == {5, 6}
    assert set(order[split.candidates]) == {0, 1, 2, 3, 4}
    # If the first time has most of the rows, those of all others are held back.
    order = np.maximum(0, np.arange(N) - 190)
    split = latest_split(order, KNOWN, 0.2)
    check_split(split, KNOWN)
    assert split.val.tolist() == [row for row in range(191, N) if KNOWN[row]]


def test_a_mask():
    mask = np.arange(N) >= 150
    split = masked_split(mask, KNOWN)
    check_split(split, KNOWN)
    assert split.val.tolist() == [row for row in range(150, N) if KNOWN[row]]
    assert split.candidates.tolist() == [*range(150)]


@pytest.mark.parametrize(
    'values',
    [
        [3, 1, 3, 2],
        [0.5, -1.0, 0.5, 0.25],
        ['c', 'a', 'c', 'b'],
        np.array(['2021', '2019', '2021', '2020'], dtype='M8[ns]'),
        pandas.Series(['c', 'a', 'c', 'b'], dtype='category'),
        pandas.Series([3, 1, 3, 2], dtype='Int64', index=[*'wxyz']),
        pandas.to_datetime(['2021', '2019', '2021', '2020']).tz_localize('UTC'),
    ],
)
def test_ranks_of_values(values):
    assert codes_of(values, 'groups', 4).tolist() == [2, 0, 2, 1]


X, Y = seeded().normal(size=(60, 3)), seeded(1).normal(size=60)
DAYS = np.arange(60).astype('M8[D]')
GAPS = np.where(np.arange(60) == 7, np.datetime64('NaT'), DAYS)
MASK = np.arange(60) < 20
BAD = {
    'a gap': (
        {'groups': np.where(MASK, np.nan, 1.0)},
        r"'groups' must have no missing values \(got 20, first in row 0\)",
    ),
    'none': (
        {'groups': [None] + ['a'] * 59},
        r"'groups' must have no missing values \(got 1, first in row 0\)",
    ),
    'no date': ({'order': GAPS}, r"'order' must have no .* \(got 1, first in row 7\)"),
    'a length': (
        {'order': np.arange(59)},
        r"'order' must have one value for each of the 60 rows \(got shape \[59\]\)",
    ),
    'columns': ({'groups': np.ones((60, 1))}, r"'groups' must have .* shape \[60, 1\]"),
    'a scalar': ({'groups': 3}, r"'groups' must have .* \(got shape \[\]\)"),
    'kinds': (
        {'order': np.array([1, 'a'] * 30, dtype=object)},
        "'order' must hold values of one kind",
    ),
    **{
        f'a name for {name}': (
            {name: 'site'},
            rf"'{name}' must hold a value per row \(got 'site'\): pass the column, X\[",
        )
        for name in ('groups', 'order')
    },
    **{
        f'masked {name}': (
            {name: np.ma.array(np.arange(60), mask=np.arange(60) > 50)},
            f"'{name}' must have no masked values",
        )
        for name in ('groups', 'order')
    },
    'one group': ({'groups': [4] * 60}, r"'groups' must have .* two groups \(got one"),
    'one time': ({'order': DAYS[:1].repeat(60)}, r"'order' must have two .* \(got one"),
    'both': (
        {'groups': MASK, 'order': DAYS},
        r"'groups' is not supported with 'order': each of them .* \(got both\)",
    ),
    'groups and a mask': (
        {'groups': np.arange(60) % 3, 'validation_mask': MASK},
        r"'groups' is not supported with 'validation_mask': .* \(got both\)",
    ),
    'order and a mask': (
        {'order': np.arange(60), 'validation_mask': MASK},
        r"'order' is not supported with 'validation_mask': .* \(got both\)",
    ),
}


@pytest.mark.parametrize('case', BAD)
def test_bad_groups_and_orders(case):
    options, text = BAD[case]
    with pytest.raises((TypeError, ValueError), match=text):
        GSLRegressor('none', max_iter=1).fit(X, Y, **options)


def test_all_labels_in_one_group_or_at_one_time(few):
    y = np.where(MASK, np.arange(60) % 3, -1)
    model = GSLClassifier('none', **few)
    with pytest.raises(ValueError, match=r"'groups' must have labelled rows of two"):
        model.fit(X, y, groups=~MASK)
    with pytest.raises(ValueError, match=r"'order' must have two values of labelled"):
        model.fit(X, y, order=~MASK)


@pytest.mark.parametrize(
    ('options', 'expected'),
    [
        ({'groups': np.arange(60) % 3}, [{0}, {1}, {2}]),
        ({'groups': np.arange(60) % 20}, None),
        ({'order': np.arange(60) // 6}, [{8, 9}]),
        ({'order': DAYS}, [set(range(48, 60))]),
    ],
)
def test_what_an_estimator_holds_back(options, expected, few, monkeypatch):
    seen = []

    class Noting(Training):
        def __init__(self, model, table, split, *args):
            seen.append(split)
            super().__init__(model, table, split, *args)

    monkeypatch.setattr(GSLRegressor, '_training_class', Noting)
    GSLRegressor('none', **few | {'max_iter': 1}).fit(X, Y, **options)
    value = options.get('groups', options.get('order'))
    value = np.unique(value, return_inverse=True)[1]
    val_groups = [set(value[split.val.numpy()].tolist()) for split in seen]
    if expected is None:
        (val_groups,) = val_groups
        assert len(val_groups) == 4  # A fifth of twenty groups.
        return
    assert sorted(val_groups, key=min) == expected


def test_without_a_fraction_no_row_is_held_back(few):
    options = few | {'max_iter': 1, 'validation_fraction': 0.0}
    for choice in ({'groups': MASK}, {'order': DAYS}):
        model = GSLRegressor('none', **options).fit(X, Y, **choice)
        assert model.report_['loss'].isna().all()
