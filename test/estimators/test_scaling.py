"""Columns of numbers against exact fractions and NumPy."""

from fractions import Fraction

import numpy as np
import pytest

from torch_geometric_gsl.sklearn._scaling import measure_columns, scale_columns


@pytest.mark.parametrize('unit', [1.0, 1e25, 1e-25, 1e300, 1e-300])
@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_columns_of_any_unit(unit, dtype):
    x = np.random.default_rng(0).normal(3, 2, size=(50, 2))
    if dtype == np.float32 and not 1e-30 < unit < 1e30:
        pytest.skip('beyond single precision')
    values = (unit * x).astype(dtype)
    mean, deviation = measure_columns(values)
    np.testing.assert_allclose(mean / unit, x.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(deviation / unit, x.std(axis=0), rtol=1e-6)
    out = scale_columns(values, mean, deviation)
    np.testing.assert_allclose(out, (x - x.mean(axis=0)) / x.std(axis=0), 1e-5, 1e-6)


def test_many_rows_of_single_precision():
    x = (101325 + 5 * np.random.default_rng(0).normal(size=(60_000, 1))).astype('f4')
    exact = sum(map(Fraction, x[:, 0].tolist())) / len(x)
    mean, deviation = measure_columns(x)
    assert mean[0] == pytest.approx(float(exact), rel=1e-15)
    assert deviation[0] == pytest.approx(np.std(x.astype(float)), rel=1e-9)


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@pytest.mark.parametrize('value', [0.1, -1e25, 1e-25, 101325])
def test_columns_that_are_constant_but_for_rounding(dtype, value):
    value = dtype(value)
    x = np.full((30, 1), value)
    x[::2] = np.nextafter(value, dtype(0))
    mean, deviation = measure_columns(x)
    assert deviation[0] == 0
    assert mean[0] == pytest.approx(float(value), rel=1e-6)
    # What it holds later tells nothing.
    assert (scale_columns(1.01 * x, mean, deviation) == 0).all()


def test_what_differs_by_more_than_rounding_is_no_constant():
    x = np.array([[1e6], [1e6 + 1], [1e6 + 2]], dtype=np.float32)
    assert measure_columns(x)[1][0] == pytest.approx(np.sqrt(2 / 3))
    assert measure_columns(np.array([[2**40], [2**40 + 2]]))[1][0] == 1
    largest = np.finfo(float).max
    mean, deviation = measure_columns(np.array([[largest], [-largest]]))
    assert (mean[0], deviation[0]) == (0, largest)
    assert scale_columns(np.array([[-largest]]), mean, deviation)[0, 0] == -1
