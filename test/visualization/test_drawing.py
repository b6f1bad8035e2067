from itertools import combinations

import numpy as np
import pytest

from torch_geometric_gsl.visualization._drawing import palette


def oklab(colour):
    """Coordinates in which equal distances look alike (Ottosson, 2020)."""
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    light = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    opponents = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return opponents @ np.cbrt(cones @ light)


@pytest.mark.parametrize(('number', 'least'), [(8, 0.13), (10, 0.13), (20, 0.09)])
def test_colours_of_classes_differ(number, least):
    """Two reds that look alike are 0.06 apart, blue and green 0.2."""
    colours = palette(number)[:number]
    assert len(colours) == number
    # Nodes without a label are grey, the page is white.
    others = [*colours, '#bbbbbb', '#ffffff']
    apart = [np.linalg.norm(oklab(a) - oklab(b)) for a, b in combinations(others, 2)]
    assert min(apart) > least


def test_colours_of_more_classes_than_listed():
    assert len(set(palette(50))) == 50
    assert palette(8)[:3] == palette(20)[:3]
