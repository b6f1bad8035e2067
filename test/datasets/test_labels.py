import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_geometric_gsl.datasets._labels import encode

LARGE = 2**53  # The next number is none in double precision.


@pytest.mark.parametrize(
    ('labels', 'y', 'class_names'),
    [
        (['10', '2', '10'], [1, 0, 1], ['2', '10']),
        (['1.0', '-1', '1'], [1, 0, 1], ['-1', '1']),
        (['10', '2', 'x'], [0, 1, 2], ['10', '2', 'x']),
        (['1_0', '2', '10'], [1, 2, 0], ['10', '1_0', '2']),
        ([f'{LARGE + 1}.0', str(LARGE), '0'], [2, 1, 0], None),
        (['01', '1', '1.0'], [0, 1, 2], ['01', '1', '1.0']),  # Codes are names.
        (['-01', '0', '-1'], [0, 2, 1], ['-01', '-1', '0']),
        (['0e9', '0.0', '1'], [0, 0, 1], ['0', '1']),
        ([3, 1, 3], [1, 0, 1], ['1', '3']),
        ([True, False, True], [1, 0, 1], ['False', 'True']),
    ],
)
def test_classes(labels, y, class_names):
    numbers, names = encode(labels, 'it')
    assert numbers.tolist() == y
    assert class_names is None or names == class_names


@pytest.mark.parametrize('label', ['1.5', '1e-400', '0e9999999999999999999'])
def test_measured_numbers_are_no_classes(label):
    with pytest.raises(ValueError, match=rf'not measured numbers \(got {label}\)'):
        encode(['1', label], 'it')


@settings(max_examples=20)
@given(st.lists(st.text(min_size=1), min_size=2).filter(lambda t: len(set(t)) > 1))
def test_class_names_give_the_labels_back(labels):
    labels = [f'_{label}' for label in labels]
    y, class_names = encode(labels, 'it')
    assert [class_names[i] for i in y.tolist()] == labels
    assert class_names == sorted(class_names)


def test_rare_classes():
    labels = [f'group {i}' for i in range(11)] * 2 + [f'single {i}' for i in range(12)]
    encode(labels[:-1], 'it')
    with pytest.raises(ValueError, match='got 23 classes in 34 rows, 12 of'):
        encode(labels, 'it')
    # Small tables may have what they like.
    encode(range(20), 'it')
    with pytest.raises(ValueError, match='got 21 classes in 21 rows, 21 of them'):
        encode(range(21), 'it')
