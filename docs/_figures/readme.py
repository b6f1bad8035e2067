"""Draw the README's picture, of a real fit, into ``docs/_static/readme.png``.

The districts around San Francisco of the California housing data: one of them is
predicted, and lines lead to the training rows with the largest weights.
``GSL_DATA`` names the folder of the data; ``MODEL`` a file that keeps the fit.
"""

import os
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from reproduction.tables_data import california

from torch_geometric_gsl.sklearn import GSLRegressor

OUT = Path(__file__).resolve().parents[1] / '_static' / 'readme.png'
BOX = (-122.62, -121.6, 37.2, 38.15)  # Longitude and latitude.
SHOWN = 10
DARK, RED = '#222222', '#d1372c'

x, y = california()[:2]
inside = (x[:, 7] > BOX[0]) & (x[:, 7] < BOX[1]) & (x[:, 6] > BOX[2]) & (x[:, 6] < BOX[3])
x, y = x[inside], y[inside]
order = np.random.default_rng(0).permutation(len(y))
train, test = np.split(order, [3 * len(y) // 4])
kept = os.environ.get('MODEL')
if kept and Path(kept).exists():
    model = GSLRegressor.load(kept)
else:
    model = GSLRegressor('learned', n_members=1, random_state=0)
    model.fit(x[train], y[train])
    if kept:
        model.save(kept)
print(len(train), len(test), model.score(x[test], y[test]), model.n_iter_)
