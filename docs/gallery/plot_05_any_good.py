r"""
Check whether the graph helps
=============================

A network can train well on a useless graph, because the features of each node are
enough. This page checks three things of a trained model: does it select neighbours at
all, which ones, and how well does the network do without them?

It needs ``pip install '.[sklearn,plot]'`` in a clone of the repository.
"""

import warnings

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.nn.models import MLP, GraphSAGE

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.diagnostics import (
    UniformSamplingWarning,
    describe_graph,
    describe_model,
)
from torch_geometric_gsl.transforms import SimilarityKNNGraph

# %%
# Five hundred handwritten digits, of which fifty have a label, and two networks. The
# first is the network of the paper, as printed; the second compares pixels by their
# cosine, multiplied by 40.

x, y = (torch.from_numpy(array[:500]) for array in load_digits(return_X_y=True))
x = torch.nn.functional.normalize(x.float())
train, test = torch.arange(50), torch.arange(50, 500)


def fit(make, *graph, seed=0):
    seed_everything(seed)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(50):
        optimizer.zero_grad()
        if isinstance(model, GSLNet):
            loss = model.loss(x, y, train)  # The same loss, and it checks the graph.
        else:
            loss = cross_entropy(model(x, *graph)[train], y[train])
        loss.backward()
        optimizer.step()
    return model.eval()


def on_learned_graph(**options):
    return GSLNet.paper(64, 32, 2, 10, loop=False, **options)


def on_sharp_graph():
    return on_learned_graph(similarity='linear', z_channels=-1, scale=40.0)


flat, sharp = fit(on_learned_graph), fit(on_sharp_graph)

# %%
# Does it select neighbours?
# --------------------------
#
# The neighbours of row :math:`i` are drawn with the probabilities :math:`\pi_i =
# \mathrm{softmax}_j(\lambda \phi_{ij})`, where :math:`\phi` is the similarity and
# :math:`\lambda` the :term:`scale`. The number of :term:`effective candidates` is the
# exponential of their entropy: this many equally likely rows have the same entropy.
# ``sampler.distribution`` computes it for all rows, and
# :func:`~torch_geometric_gsl.diagnostics.describe_model` for all layers of a model.

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    UniformSamplingWarning.reset()
    summary = describe_model(flat, x)
print(summary.layers[0])
print('\nWarning:', caught[0].message)

# %%
# The first network samples its neighbours nearly uniformly. Any similarity between 0
# and 1 does so at a scale of 1, as the best row is at most :math:`e` times as likely
# as the worst. Raise the scale, not the temperature :term:`tau`, which spreads each
# draw over several rows but does not change the probabilities.

spread = sharp.convs[0].sampler.distribution(x)
print(f'sharp: {spread.effective.median():.0f} of {spread.candidates[0]} are effective')

# %%
# Which neighbours?
# -----------------
#
# With known labels, compare the share of the weight that joins equal ones with chance.
# :func:`~torch_geometric_gsl.diagnostics.describe_graph` computes both for any graph.
# ``loss`` does the same once, after 50 calls, with the labelled rows: the
# :class:`~torch_geometric_gsl.diagnostics.HomophilyWarning` under the training above,
# and under the comparison below, is about the flat network. Its graph joins labelled
# digits of one class *less* often than chance, since its similarity is largest at the
# cosine ``b`` of the table above, and two images of one digit have a larger cosine. The
# warning suggests the two controls below.

with torch.no_grad():
    graphs = {'flat': flat.graphs(x)[0], 'sharp': sharp.graphs(x)[0]}
for name, graph in graphs.items():
    summary = describe_graph(graph, y)
    print(
        f'{name:<6} {summary.weighted_homophily:.0%} of the weight joins equal digits '
        f'({summary.chance:.0%} by chance), '
        f'{summary.effective_neighbors.mean():.1f} effective neighbours'
    )

# %%
# Homophily is no proof: on other tasks neighbours *should* differ, as in
# :doc:`/auto_gallery/plot_04_own_gnn`, and a graph that joins equal labels may only
# repeat the information in a row's own features.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout='constrained')
for ax, (name, model) in zip(axes, {'flat': flat, 'sharp': sharp}.items(), strict=True):
    effective = describe_model(model, x).layers[0].effective_candidates
    ax.hist(effective, bins=40, range=(0, 500), color='C0')
    ax.axvline(499, color='C1', label='uniform')
    ax.set(title=name, xlabel='effective candidates of a row', ylabel='rows')
    ax.legend()
plt.show()

# %%
# Is it better than no graph?
# ---------------------------
#
# The decisive comparison. Three :term:`controls <control>` are trained in the same way:
# the network with neighbours drawn uniformly at random, which lacks only the selection;
# GraphSAGE of PyTorch Geometric on the ten nearest rows, which has a :term:`root
# weight` for a row's own features; and a multilayer perceptron. Three seeds each.

near = SimilarityKNNGraph(10)(Data(x=x)).edge_index
models = {
    'sharp graph': (on_sharp_graph,),
    'flat graph': (on_learned_graph,),
    'uniform graph': (lambda: on_learned_graph(similarity='uniform'),),
    # Without dropout, with which the MLP has five points less.
    'nearest rows': (lambda: GraphSAGE(64, 32, 2, 10, act='elu'), near),
    'no graph, MLP': (lambda: MLP([64, 32, 10], act='elu', norm=None),),
}


@torch.no_grad()
def accuracy(model, *graph):
    return float((model(x, *graph).argmax(dim=1) == y)[test].float().mean())


scores = {
    name: [accuracy(fit(make, *graph, seed=seed), *graph) for seed in range(3)]
    for name, (make, *graph) in models.items()
}
figure, ax = plt.subplots(figsize=(7, 2.8), layout='constrained')
for i, (name, score) in enumerate(scores.items()):
    mean = sum(score) / len(score)
    ax.plot(score, [i] * 3, 'o', color='C0', alpha=0.4)
    ax.plot(mean, i, '|', color='C1', markersize=18, markeredgewidth=3)
    print(f'{name:<18} {mean:.1%}')
ax.set(xlabel='accuracy on 450 rows without a label; orange: the mean')
ax.set_yticks(range(len(scores)), scores)
ax.invert_yaxis()
plt.show()

# %%
# Read it from the bottom.
#
# * The flat graph is no better than a random one, and both no better than no graph. Its
#   effective candidates and the warning showed this before any test score.
# * The sharp graph is well above all three: with five labels per class, neighbours
#   carry more information than a row's own features.
# * But the plain nearest rows are as good. A graph of similar rows helps here; learning
#   it adds nothing on these digits. Without this control the sharp graph would have
#   looked like a success of learning.
#
# If your graph fails the first check, raise ``scale`` or make it ``train_scale=True``.
# If it fails the last one, use the control, which is simpler. :doc:`/faq`
# says where a graph passes both; to refine a graph that you *have* see
# :doc:`/auto_gallery/plot_06_refine`.
