r"""
Classify the rows of a table
============================

You have a table with numbers, texts and missing values, a class to predict, and no
graph. This page learns the graph inside a scikit-learn pipeline with ``fit`` and
``predict``, compares it with models that use no graph, and shows how to read it.

It needs ``pip install '.[sklearn,plot]' pandas`` in a clone of the repository.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from torch_geometric_gsl.sklearn import GSLClassifier, make_table_transformer

# %%
# A realistic table
# -----------------
#
# The wine table of scikit-learn is too tidy: 178 rows and 13 numbers, none missing. So
# we turn one column, the colour intensity, into words, and delete one entry in ten.

table, cultivar = load_wine(as_frame=True, return_X_y=True)
random = np.random.default_rng(0)
colours = ['pale', 'medium', 'deep']
table['colour'] = pd.qcut(table.pop('color_intensity'), 3, labels=colours).astype(str)
table = table.mask(random.random(table.shape) < 0.1)
table[['alcohol', 'malic_acid', 'colour']].head()

# %%
# Fit and predict
# ---------------
#
# :func:`~torch_geometric_gsl.sklearn.make_table_transformer` encodes words as columns
# of zeros and ones and fills in missing values.
# :class:`~torch_geometric_gsl.sklearn.GSLClassifier` connects each row to its
# neighbours and predicts from the row and these neighbours. Both work in a pipeline,
# like any estimator of scikit-learn.

rows, new_rows, y, y_new = train_test_split(
    table, cultivar, stratify=cultivar, random_state=0
)
model = make_pipeline(make_table_transformer(), GSLClassifier(random_state=0))
model.fit(rows, y)
print(f'{model.score(new_rows, y_new):.1%} of {len(new_rows)} new rows are right')
print(model.predict_proba(new_rows[:2]).round(2))

# %%
# What is in the blend?
# ---------------------
#
# With ``graph='auto'``, the default, networks with a learned graph and without a graph,
# a linear model and boosted trees are blended. Their losses on held-back rows determine
# the weights. The constant and the nearest rows are shown for comparison.

model[-1].report_.round(2)

# %%
# Is the graph worth it?
# ----------------------
#
# One split of 178 rows is not reliable, so here are three. Networks with and without a
# graph are requested by name. The learned graph has to beat the
# :term:`controls <control>`, models without a learned graph: a multilayer perceptron,
# nearest neighbours and logistic regression.

models = {
    'GSL, blend': GSLClassifier(n_members=1, random_state=0),
    'GSL, learned graph': GSLClassifier('learned', n_members=1, random_state=0),
    'GSL, no graph': GSLClassifier('none', n_members=1, random_state=0),
    'MLP': MLPClassifier(max_iter=1000, random_state=0),
    'nearest neighbours': KNeighborsClassifier(),
    'logistic regression': LogisticRegression(),
}
scores = {name: [] for name in models}
for seed in range(3):
    split = train_test_split(table, cultivar, stratify=cultivar, random_state=seed)
    for name, estimator in models.items():
        pipeline = make_pipeline(make_table_transformer(), StandardScaler(), estimator)
        pipeline.fit(split[0], split[2])
        scores[name].append(pipeline.score(split[1], split[3]))

figure, ax = plt.subplots(figsize=(7, 3.5), layout='constrained')
for i, (name, score) in enumerate(scores.items()):
    ax.plot(score, [i] * 3, 'o', color='C0', alpha=0.4)
    ax.plot(np.mean(score), i, '|', color='C1', markersize=20, markeredgewidth=3)
    print(f'{name:<20} {np.mean(score):.3f} ± {np.std(score, ddof=1):.3f}')
ax.set(xlabel='accuracy on rows held out; orange: the mean', xlim=(None, 1.005))
ax.set_yticks(range(len(models)), models)
ax.invert_yaxis()
plt.show()

# %%
# **On this table a graph gains nothing.** The columns of a wine determine its cultivar,
# and other wines add no information. Logistic regression, which is faster, is no worse
# than the blend. A graph helps where the target of a
# row depends on *other* rows: :doc:`/auto_gallery/plot_01_tables` and
# :doc:`/auto_gallery/plot_04_own_gnn` have cases, and :doc:`/faq` leads to
# measurements.
#
# Reading the graph
# -----------------
#
# A learned graph is still informative: it shows which rows a prediction uses.
# ``graph_`` is a sparse matrix; row 0 holds the weights of the neighbours of the first
# training row, and the weights of a row sum to 1.

learned = make_pipeline(
    make_table_transformer(), GSLClassifier('learned', random_state=0)
).fit(rows, y)
graph = learned[-1].graph_
print(graph.shape, f'{graph.nnz / len(rows):.0f} neighbours a row')

weights = graph[0].tocoo()
strongest = weights.col[np.argsort(-weights.data)[:4]]
neighbours = rows.iloc[[0, *strongest]][['alcohol', 'flavanoids', 'proline', 'colour']]
neighbours.insert(0, 'weight', [np.nan, *np.sort(weights.data)[::-1][:4].round(2)])
neighbours.insert(1, 'cultivar', y.iloc[[0, *strongest]])
neighbours

# %%
# The whole matrix, with rows sorted by cultivar. Dots are edges; most of them lie in
# the three blocks on the diagonal, which connect wines of the same cultivar.

order = np.argsort(y.to_numpy(), kind='stable')
matrix = graph[order][:, order].toarray()
figure, ax = plt.subplots(figsize=(4.5, 4.2), layout='constrained')
image = ax.imshow(matrix, cmap='Blues', vmax=0.5, interpolation='nearest')
edges = np.cumsum(np.bincount(y))[:-1] - 0.5
ax.hlines(edges, *ax.get_xlim(), color='C1', linewidth=0.8)
ax.vlines(edges, *ax.get_ylim(), color='C1', linewidth=0.8)
ax.set(xlabel='neighbour', ylabel='row', xticks=[], yticks=[])
figure.colorbar(image, label='weight')
plt.show()

same = y.to_numpy()[graph.tocoo().row] == y.to_numpy()[graph.tocoo().col]
share = graph.data[same].sum() / graph.data.sum()
print(f'{share:.0%} of the weight joins wines of one cultivar')

# %%
# Next: :doc:`/auto_gallery/plot_03_new_rows`, for rows that arrive one at a time, and
# :doc:`/guide/tables`, for all options of these estimators.
