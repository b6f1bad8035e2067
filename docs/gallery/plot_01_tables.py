r"""
Tables in five minutes
======================

You have a table in a csv file, with numbers, texts and missing values, and one column
to predict. This page fits an estimator that learns which rows resemble each other,
shows the rows behind a prediction, and compares the result with gradient boosting: on
one table where it wins and on one where it loses.

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
# So that this page needs no network, it makes its table. The price of a house is the
# exponential of a sum: an irregular field of its place, which is a sum of 200 waves in
# random directions, effects of its area, its year and its kind, and noise. One year in
# ten and one kind in ten are lost. The file has what a seller would write down.

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
# Six lines. :class:`~torch_geometric_gsl.sklearn.GSLRegressor` takes the DataFrame as
# it is; the kinds are read as categories for gradient boosting below, which takes no
# texts. ``explain`` shows one prediction, and below it the rows of training that it
# leans on most, with their prices: the weights of all of them sum to 1.

table = pd.read_csv(path, dtype={'kind': 'category'})
price = table.pop('price')
rows, new, y, y_new = train_test_split(table, price, test_size=250, random_state=0)
model = GSLRegressor('learned', random_state=0).fit(rows, y)
print(f'{model.predict(new[:1])[0]:.0f} is predicted, {y_new.iloc[0]:.0f} is the price')
model.explain(new[:1]).round(2)

# %%
# The prediction is not the weighted mean of these prices. The neighbours differ from
# the house in area, year and kind, and the network has learned what such differences
# are worth.
#
# Three houses
# ------------
#
# ``kneighbors`` returns the same for many rows: weights, and the numbers of training
# rows. The picture shows the ten neighbours with the largest weights of three new
# houses, with their prices, beside the house itself.

weights, neighbours = model.kneighbors(new[:3], 10)
predicted = model.predict(new[:3])
figure, axes = plt.subplots(1, 3, figsize=(8, 3.4), layout='constrained', sharey=True)
for i, ax in enumerate(axes):
    ax.barh(range(10), weights[i], color='C0')
    for place, number in enumerate(neighbours[i]):
        ax.text(weights[i, place], place, f' {y.iloc[number]:.0f}', va='center')
    ax.set(title=f'predicted {predicted[i]:.0f}, true {y_new.iloc[i]:.0f}')
    ax.set(xlabel='weight', xlim=(0, 1.3 * weights[i, 0]), yticks=[])
axes[0].set_ylabel('neighbours, with their prices')
axes[0].invert_yaxis()
plt.show()

# %%
# The same on the map. A line joins a house to a row that its prediction leans on, and
# is the wider the larger the weight. Nobody told the model that two of the columns are
# a place: the distance that it has learned says so.

figure, ax = plt.subplots(figsize=(6, 5), layout='constrained')
dots = ax.scatter(rows.east, rows.north, c=y, s=12, cmap='viridis', vmax=300)
weights, neighbours = model.kneighbors(new[:3], 96)
for i, house in enumerate(new[:3].itertuples()):
    for weight, number in zip(weights[i], neighbours[i], strict=True):
        other = rows.iloc[number]
        ends = [house.east, other.east], [house.north, other.north]
        ax.plot(*ends, color='C3', linewidth=12 * weight, alpha=0.7)
    ax.plot(house.east, house.north, 'o', color='C3', markersize=8)
ax.set(xlabel='east', ylabel='north', aspect='equal')
figure.colorbar(dots, label='price')
plt.show()

# %%
# Does it win?
# ------------
#
# Two :term:`controls <control>` stand beside it, with their defaults: gradient
# boosting, and ``graph='none'``, the same network without neighbours.


def compare(rows, new, y, y_new, learned=None):
    fitted = {
        'gradient boosting': HistGradientBoostingRegressor(random_state=0).fit(rows, y),
        "graph='none'": GSLRegressor('none', random_state=0).fit(rows, y),
        "graph='learned'": learned
        or GSLRegressor('learned', random_state=0).fit(rows, y),
    }
    found = {
        name: np.sqrt(np.mean((model.predict(new) - y_new) ** 2))
        for name, model in fitted.items()
    }
    print('RMSE ' + ', '.join(f'{name}: {value:.2f}' for name, value in found.items()))
    return found


of_houses = compare(rows, new, y, y_new, learned=model)

# %%
# The second table is made, too: the fee of a parcel goes up in steps, by weight,
# distance, length, service and hour. No parcel knows of another's fee what the columns
# do not say.

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

of_parcels = compare(*train_test_split(parcels, fee, test_size=250, random_state=0))

# %%
# **Neighbours pay where they know something that the columns do not say.** Of the
# houses they know the field at their place. Of the parcels every column has its own
# rule, which trees find by cutting columns into pieces, and a graph adds nothing.
#
# A random split flatters neighbours: each new house stands among houses whose price is
# known. So we ask for a quarter of the town from which nothing is known.

east = table.east > 0.75
by_place = compare(table[~east], table[east], price[~east], price[east])

figure, axes = plt.subplots(1, 3, figsize=(8, 2.6), layout='constrained', sharey=True)
titles = 'houses, random split', 'parcels', 'houses, split by place'
for ax, title, found in zip(
    axes, titles, (of_houses, of_parcels, by_place), strict=True
):
    ax.barh(list(found), list(found.values()), color=['C7', 'C7', 'C0'])
    ax.set(title=title, xlabel='RMSE')
axes[0].invert_yaxis()
plt.show()

# %%
# Choose the split by what you will ask: ``fit(..., validation_mask=...)`` holds back
# rows of a region or of the latest months, which end the training and with
# ``graph='auto'``, the default, choose between a learned graph, the nearest rows and
# none. One region is a weak judge: :doc:`/guide/tables` has an example where it chose
# the worst. :doc:`/internals/tables_numbers` compares the estimators with boosting on
# real tables, and :doc:`/guide/tables` has all options. Next:
# :doc:`/auto_gallery/plot_02_my_table`, for classes.
