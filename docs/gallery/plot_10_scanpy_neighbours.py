r"""
Neighbours for scanpy, UMAP and clustering
==========================================

scanpy, UMAP, spectral clustering and t-SNE start from a graph of nearest neighbours.
They accept one that was computed elsewhere. This page gives them the neighbours that a
fitted classifier looks at, and measures what they add.

It needs ``pip install '.[sklearn,plot]'`` in a clone of the repository.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_matrix
from sklearn.cluster import SpectralClustering
from sklearn.datasets import load_digits
from sklearn.manifold import SpectralEmbedding
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import NeighborhoodComponentsAnalysis, kneighbors_graph
from sklearn.preprocessing import StandardScaler

from torch_geometric_gsl.sklearn import GSLClassifier

# %%
# Columns without information
# ---------------------------
#
# Think of cells and genes: a few genes determine the kind of a cell, many only add
# noise. Here the cells are handwritten digits, and their 64 pixels are followed by as
# many columns of noise. The kind of every second cell is known; -1 is an unknown one.

pixels, y = load_digits(return_X_y=True)
pixels = StandardScaler().fit_transform(pixels)
noise = np.random.default_rng(0).normal(size=pixels.shape)
x = np.concatenate([pixels, noise], axis=1)
is_known = np.arange(len(y)) % 2 == 1
labels = np.where(is_known, y, -1)

# %%
# Neighbours of a fitted classifier
# ---------------------------------
#
# :class:`~torch_geometric_gsl.sklearn.GSLClassifier` learns a distance of rows from the
# labels. Its ``kneighbors`` returns the largest weights of each row and the rows that
# have them; a row of training is its own first neighbour. The logarithm of the weights
# turns them into distances, 0 for the row itself. Two lines build the sparse matrix
# that the other tools read: in CSR form, each row by increasing distance.

model = GSLClassifier('learned', n_members=1, random_state=0).fit(x, labels)
weights, rows = model.kneighbors(x, n_neighbors=16)
distances = np.log(weights[:, :1]) - np.log(weights.clip(min=1e-38))
offsets = np.arange(0, rows.size + 1, rows.shape[1])
learned = csr_matrix((distances.ravel(), rows.ravel(), offsets), shape=(len(x), len(x)))
assert (rows[:, 0] == np.arange(len(x))).all()

# %%
# Is it better?
# -------------
#
# Two measures, both of cells of unknown kind: the share of neighbours of the same kind,
# and the agreement between clusters of the graph and the kinds (the adjusted Rand
# index, 1 if they are equal, 0 by chance). The controls are the nearest rows on the
# same columns, the nearest rows after scikit-learn's
# :class:`~sklearn.neighbors.NeighborhoodComponentsAnalysis`, which learns a linear map
# from the same labels, and the nearest rows on the pixels, which are not known in
# practice.


def nearest(columns):
    """Return the graph of the 15 nearest rows by the cosine."""
    return kneighbors_graph(columns, 15, metric='cosine')


linear_map = NeighborhoodComponentsAnalysis(random_state=0)
linear_map.fit(x[is_known], y[is_known])
graphs = {
    'learned': (learned > 0).astype(float),
    'linear map (NCA)': nearest(linear_map.transform(x)),
    'nearest': nearest(x),
    'nearest, no noise': nearest(pixels),
}
for name, graph in graphs.items():
    row, column = graph.nonzero()
    alike = (y[row] == y[column])[~is_known[row]].mean()
    clusters = SpectralClustering(10, affinity='precomputed', random_state=0)
    assigned = clusters.fit_predict(graph.maximum(graph.T))
    agreement = adjusted_rand_score(y[~is_known], assigned[~is_known])
    print(f'{name:<18} {alike:.1%} alike, Rand {agreement:.2f}')

# %%
# The labels undo about half of what the noise had hidden. A linear map that learns from
# them finds nearly as many neighbours of the same kind, but less separate clusters, and
# without noise the plain nearest rows are the best neighbours: compare on your data.
#
# The same graphs, drawn by spectral embedding and coloured by kind:

figure, axes = plt.subplots(1, 4, figsize=(12, 3.1), layout='constrained')
for ax, (name, graph) in zip(axes, graphs.items(), strict=True):
    embedding = SpectralEmbedding(2, affinity='precomputed', random_state=0)
    position = embedding.fit_transform(graph.maximum(graph.T))
    ax.scatter(*position.T, c=y, cmap='tab10', s=4)
    ax.set(title=name, xticks=[], yticks=[])
plt.show()

# %%
# In UMAP and scanpy
# ------------------
#
# UMAP takes the matrix with ``metric='precomputed'``, scanpy (1.12 and later) as
# ``distances``. Both count the row itself among its neighbours. The code follows their
# documentation; this page does not run it:
#
# .. code-block:: python
#
#    from umap import UMAP
#
#    embedding = UMAP(n_neighbors=16, metric='precomputed').fit_transform(learned)
#
# .. code-block:: python
#
#    import scanpy as sc
#
#    sc.pp.neighbors(adata, n_neighbors=16, distances=learned)
#    sc.tl.umap(adata)
#    sc.tl.leiden(adata)
#
# t-SNE of scikit-learn takes the matrix as ``TSNE(metric='precomputed',
# init='random')``. For the graph without the rows themselves, use ``model.graph_``. The
# estimators: :doc:`/guide/tables`.
