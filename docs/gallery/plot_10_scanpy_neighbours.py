r"""
Neighbours for scanpy, UMAP and clustering
==========================================

scanpy, UMAP, spectral clustering and t-SNE start from a graph of nearest neighbours.
They accept any transformer that follows scikit-learn's convention. This page gives them
one that *learns* which columns make two rows neighbours, and measures what it adds.

It needs ``pip install '.[sklearn,plot]'`` in a clone of the repository.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import SpectralClustering
from sklearn.datasets import load_digits
from sklearn.manifold import SpectralEmbedding
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import KNeighborsTransformer
from sklearn.preprocessing import StandardScaler

from torch_geometric_gsl.sklearn import GSLNeighborsTransformer

# %%
# Columns without information
# ---------------------------
#
# Think of cells and genes: a few genes determine the kind of a cell, many only add
# noise. Here the cells are handwritten digits of five kinds, and their 64 pixels are
# followed by as many columns of noise.

pixels, y = load_digits(n_class=5, return_X_y=True)
pixels, y = pixels[:500], y[:500]
pixels = StandardScaler().fit_transform(pixels)
noise = np.random.default_rng(0).normal(size=pixels.shape)
x = np.concatenate([pixels, noise], axis=1)

# %%
# Replace KNeighborsTransformer
# -----------------------------
#
# :class:`~torch_geometric_gsl.sklearn.GSLNeighborsTransformer` learns a weight for each
# column. Without labels, as here, it hides entries and reconstructs them from the
# neighbours; a column that helps to find such neighbours gains weight. Then it lists
# the nearest rows by the cosine of the weighted columns, as a sparse matrix of
# distances.

ours = GSLNeighborsTransformer(15, max_iter=30, random_state=0)
plain = KNeighborsTransformer(n_neighbors=15, metric='cosine')
learned, nearest = ours.fit_transform(x), plain.fit_transform(x)
weights = np.abs(ours.feature_weights_)
print(f'mean weight of a pixel: {weights[:64].mean():.2f}')
print(f'mean weight of a column of noise: {weights[64:].mean():.2f}')

# %%
# These tools expect a square matrix in CSR form, with ``n_neighbors + 1`` entries in
# each row: first the row itself, with distance 0, then the others by increasing
# distance. They also expect a parameter ``n_neighbors``. Both transformers comply.

for graph in (learned, nearest):
    assert graph.format == 'csr'
    assert graph.shape == (500, 500)
    index, distance = (part.reshape(500, 16) for part in (graph.indices, graph.data))
    assert (index[:, 0] == np.arange(500)).all()
    assert np.allclose(distance[:, 0], 0, atol=1e-6)
    assert (np.diff(distance, axis=1) >= 0).all()

# %%
# Is it better?
# -------------
#
# Two measures: the share of neighbours of the same kind, and the agreement between
# clusters of the graph and the kinds (the adjusted Rand index, 1 if they are equal, 0
# by chance). Three graphs: ours, the nearest rows on the same columns, and the nearest
# rows on the pixels only, which are not known in practice.


def adjacency(graph):
    """Convert a graph to a symmetric 0/1 matrix."""
    joined = (graph > 0).astype(float)
    return joined.maximum(joined.T)


graphs = {
    'learned': learned,
    'nearest': nearest,
    'nearest, no noise': plain.fit_transform(pixels),
}
for name, graph in graphs.items():
    row, column = graph.nonzero()
    apart = row != column
    same = (y[row] == y[column])[apart].mean()
    clusters = SpectralClustering(5, affinity='precomputed', random_state=0)
    found = clusters.fit_predict(adjacency(graph))
    print(f'{name:<18} {same:.1%} alike, Rand {adjusted_rand_score(y, found):.2f}')

# %%
# Learning recovers a part of what the noise had hidden, not all of it. Without noise
# there is nothing to recover, and the plain nearest rows are as good: compare both on
# your data, if you know some labels. With labels, ``fit(x, y)`` learns from them;
# unknown ones are -1.
#
# The same graphs, drawn by spectral embedding and coloured by kind:

figure, axes = plt.subplots(1, 3, figsize=(10, 3.3), layout='constrained')
for ax, (name, graph) in zip(axes, graphs.items(), strict=True):
    embedding = SpectralEmbedding(2, affinity='precomputed', random_state=0)
    place = embedding.fit_transform(adjacency(graph))
    ax.scatter(*place.T, c=y, cmap='tab10', s=6)
    ax.set(title=name, xticks=[], yticks=[])
plt.show()

# %%
# In scanpy
# ---------
#
# It needs no adapter: scanpy's ``neighbors`` takes such a transformer as an object, and
# then ignores its own ``n_neighbors`` and ``metric``. This was run with scanpy 1.11.5,
# which is not needed for this page:
#
# .. code-block:: python
#
#    import scanpy as sc
#    from torch_geometric_gsl.sklearn import GSLNeighborsTransformer
#
#    transformer = GSLNeighborsTransformer(15, random_state=0)
#    sc.pp.neighbors(adata, transformer=transformer, use_rep='X_pca')
#    sc.tl.umap(adata)
#    sc.tl.leiden(adata)
#
# Three things to know. Principal components, such as ``X_pca``, are faster than a
# sparse ``adata.X``, which works too. scanpy records ``'euclidean'`` in
# ``adata.uns['neighbors']['params']`` although the distance is 1 minus a cosine. And
# with ``standardize=True``, the default, principal components have equal variance
# until the weights are learned; ``standardize=False`` keeps their variances.
#
# UMAP takes the graph as ``UMAP(metric='precomputed')``, t-SNE of scikit-learn as
# ``TSNE(metric='precomputed', init='random')`` in a pipeline. The learned similarity
# need not be the cosine: :doc:`/internals/sampler`; the estimators:
# :doc:`/guide/tables`.
