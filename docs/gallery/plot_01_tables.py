r"""
Tables in five minutes
======================

You have a table in a csv file, with numbers, texts and missing values, and one column
to predict. This page fits an estimator that learns which rows resemble each other,
shows the rows behind a prediction, and compares the result with gradient boosting and a
network without a graph: on one table where networks win and on one where they lose.

It needs ``pip install '.[sklearn,plot]' pandas`` in a clone of the repository.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from torch_geometric_gsl.sklearn import GSLRegressor

# %%
# The table
# ---------
#
# This page needs no download: it generates its table. The price of a house is the
# exponential of a sum: an irregular field of its position, which is a sum of 200 waves
# in random directions, effects of its area, year and kind, and noise. One year in ten
# and one kind in ten are missing. The file has the columns that a seller would fill in.

rng = np.random.default_rng(0)
houses = pd.DataFrame(rng.random((1000, 2)).round(3), columns=['east', 'north'])
houses['area'] = rng.uniform(40, 200, 1000).round()
houses['year'] = rng.integers(1900, 2020, 1000)
houses['kind'] = rng.choice(['flat', 'terraced', 'detached'], 1000)

waves = houses[['east', 'north']] @ rng.normal(0, 10, (2, 200)) + 6.3 * rng.random(200)
worth = 0.04 * np.cos(waves).sum(axis=1) + 0.8 * np.log(houses.area / 100)
worth += 0.003 * (houses.year - 1960)
worth += houses.kind.map({'flat': 0, 'terraced': 0.1, 'detached': 0.3})
houses['price'] = (100 * np.exp(worth + rng.normal(0, 0.08, 1000))).round()
houses['year'] = houses.year.mask(rng.random(1000) < 0.1)
houses['kind'] = houses.kind.mask(rng.random(1000) < 0.1)

path = Path(tempfile.mkdtemp(), 'houses.csv')
houses.to_csv(path, index=False)
print(path.read_text()[:160])

# %%
# From the file to an explanation
# -------------------------------
#
# It takes six lines. :class:`~torch_geometric_gsl.sklearn.GSLRegressor` accepts the
# DataFrame as it is; the kinds are read as categories, since gradient boosting below
# accepts no texts. ``explain`` shows one prediction, then the training rows with the
# largest weights in it, with their prices. The weights of all neighbours sum to 1.

table = pd.read_csv(path, dtype={'kind': 'category'})
price = table.pop('price')
rows, new, y, y_new = train_test_split(table, price, test_size=250, random_state=0)
model = GSLRegressor('learned', n_members=1, random_state=0).fit(rows, y)
print(f'{model.predict(new[:1])[0]:.0f} is predicted, {y_new.iloc[0]:.0f} is the price')
model.explain(new[:1]).round(2)

# %%
# The prediction is not the weighted mean of these prices. The neighbours differ from
# the house in area, year and kind, and the network has learned how such differences
# change the price.
#
# Three houses
# ------------
#
# ``kneighbors`` returns weights and the numbers of training rows, for many rows at
# once. The picture shows the prices of the ten neighbours with the largest weights for
# three new houses; the titles have the predicted and the true prices of these houses.

weights, neighbours = model.kneighbors(new[:3], 10)
predicted = model.predict(new[:3])
figure, axes = plt.subplots(1, 3, figsize=(8, 3.4), layout='constrained', sharey=True)
for i, ax in enumerate(axes):
    ax.barh(range(10), weights[i], color='C0')
    for rank, j in enumerate(neighbours[i]):
        ax.text(weights[i, rank], rank, f' {y.iloc[j]:.0f}', va='center')
    ax.set(title=f'predicted {predicted[i]:.0f}, true {y_new.iloc[i]:.0f}')
    ax.set(xlabel='weight', xlim=(0, 1.3 * weights[i, 0]), yticks=[])
axes[0].set_ylabel('neighbours, with their prices')
axes[0].invert_yaxis()
plt.show()

# %%
# The neighbours on the map. A line joins a house to a training row; its width is
# proportional to the weight in the prediction. The model is not told that two of the
# columns are a position: it has learned a distance that depends on them.

figure, ax = plt.subplots(figsize=(6, 5), layout='constrained')
dots = ax.scatter(rows.east, rows.north, c=y, s=12, cmap='viridis', vmax=300)
weights, neighbours = model.kneighbors(new[:3], 96)
for i, house in enumerate(new[:3].itertuples()):
    for weight, j in zip(weights[i], neighbours[i], strict=True):
        neighbour = rows.iloc[j]
        ends = [house.east, neighbour.east], [house.north, neighbour.north]
        ax.plot(*ends, color='C3', linewidth=12 * weight, alpha=0.7)
    ax.plot(house.east, house.north, 'o', color='C3', markersize=8)
ax.set(xlabel='east', ylabel='north', aspect='equal')
figure.colorbar(dots, label='price')
plt.show()

# %%
# Does it win?
# ------------
#
# Two :term:`controls <control>` with default settings: gradient boosting, and
# ``graph='none'``, the same network without neighbours. The default, a *blend*, weighs
# networks with and without neighbours, a linear model and boosted trees by their loss
# on held-back rows.


def compare(rows, new, y, y_new, **fit_kwargs):
    models = {
        'gradient boosting': HistGradientBoostingRegressor(random_state=0).fit(rows, y)
    }
    for name, graph in {
        'no graph': 'none',
        'learned graph': 'learned',
        'blend': 'auto',
    }.items():
        model = GSLRegressor(graph, n_members=1, random_state=0)
        models[name] = model.fit(rows, y, **fit_kwargs)
    errors = {
        name: np.sqrt(np.mean((model.predict(new) - y_new) ** 2))
        for name, model in models.items()
    }
    print('RMSE ' + ', '.join(f'{name}: {value:.2f}' for name, value in errors.items()))
    return errors, models['blend']


of_houses, blend = compare(rows, new, y, y_new)
blend.report_.round(3)

# %%
# ``contributions`` divides each prediction: the mean price, what trees change, what the
# networks read from a house's own columns, and what the neighbours change.

blend.contributions(new[:3]).round(1)

# %%
# The second table is generated, too. The fee of a parcel rises in steps, by weight,
# distance, length, service and hour. Given these columns, the fees of other parcels
# carry no further information about it.

parcels = pd.DataFrame({'weight': rng.gamma(2, 2, 1000).round(2)})
parcels['length'] = rng.uniform(10, 120, 1000).round()
parcels['distance'] = rng.gamma(2, 300, 1000).round()
parcels['hour'] = rng.integers(0, 24, 1000)
services = 'standard', 'express', 'registered'
parcels['service'] = pd.Categorical(rng.choice(services, 1000))
step = np.searchsorted([1, 2, 5, 10], parcels.weight)
zone = np.searchsorted([100, 400, 1000], parcels.distance)
fee = 4 + 2.5 * step * (1 + 0.4 * zone) + 8 * (parcels.length > 60)
fee += (parcels.service == 'express') * (6 + 4 * zone) + 2 * (parcels.hour >= 18)
fee += 3 * (parcels.service == 'registered') + rng.normal(0, 0.5, 1000)

of_parcels, blend = compare(
    *train_test_split(parcels, fee, test_size=250, random_state=0)
)
blend.report_.round(3)

# %%
# **No model is first on both tables, and the blend is never far behind.** The field of
# prices is smooth, so both networks are ahead of boosting; the learned graph shows the
# houses that a prediction uses. Fees of parcels follow rules on their own columns,
# which trees fit by splits: here a graph adds nothing, and the blend leans on trees.
#
# A random split favours neighbours: each new house lies among houses with known prices.
# So the third test holds out a whole quarter of the town. Other quarters are then the
# groups that ``fit`` holds back, and that are no neighbours of each other.

east = table.east > 0.75
block = (8 * table.east).astype(int)
by_place, blend = compare(
    table[~east], table[east], price[~east], price[east], groups=block[~east]
)
print(f'{blend.is_far(table[east]).mean():.0%} of the eastern houses are far')

figure, axes = plt.subplots(1, 3, figsize=(8, 2.6), layout='constrained', sharey=True)
titles = 'houses, random split', 'parcels', 'houses, split by place'
for ax, title, errors in zip(
    axes, titles, (of_houses, of_parcels, by_place), strict=True
):
    ax.barh(list(errors), list(errors.values()), color=['C7', 'C7', 'C0', 'C1'])
    ax.set(title=title, xlabel='RMSE')
axes[0].invert_yaxis()
plt.show()

# %%
# If new rows are of other places, groups or times, say so: ``fit(..., groups=...)`` or
# ``fit(..., order=...)`` holds back rows like them. :doc:`/guide/tables` has more
# options, and :doc:`/faq` leads to a comparison with boosting on real tables. Next:
# :doc:`/auto_gallery/plot_02_my_table`, for classes.
