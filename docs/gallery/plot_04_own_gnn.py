r"""
Add a sampler to your own GNN
=============================

You have a network of PyTorch Geometric layers and no ``edge_index``. This page puts a
sampler in front of it, trains both together, and compares the result with the same
network on other graphs. The task cannot be solved without the right neighbours.

It needs ``pip install '.[plot]'`` in a clone of the repository.
"""

import matplotlib.pyplot as plt
import torch
from torch.nn import functional as F
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, SAGEConv
from torch_geometric.nn.models import MLP, GraphSAGE

from torch_geometric_gsl import (
    GumbelKNNSampler,
    NeuralGaussianSimilarity,
    UniformSimilarity,
)
from torch_geometric_gsl.datasets import HiddenRelation
from torch_geometric_gsl.transforms import SimilarityKNNGraph

# %%
# Two lines
# ---------
#
# A *similarity* scores pairs of rows. A *sampler* draws the neighbours of each row by
# these scores, and returns an ``edge_index`` and an ``edge_weight``; the weights of
# each target sum to 1. Any layer that takes ``edge_weight`` can use them, and gradients
# flow through the weights to the similarity.

seed_everything(0)
x = torch.randn(1000, 16)
sampler = GumbelKNNSampler(NeuralGaussianSimilarity(16), k=5)
edge_index, edge_weight = sampler(x)
out = GraphConv(16, 32)(x, edge_index, edge_weight)
print(edge_index.shape, out.shape)

# %%
# The draw is a :term:`race`: every candidate arrives after a random time, which tends
# to be earlier for a larger score, and the first to arrive are the neighbours. The
# sampler finds them by the cheapest of four methods, and says which one and why. Here
# a ``stream`` scores each pair once; a ``race`` proposes candidates until the first
# have arrived, which pays among more rows or with flatter scores:

print(sampler.plan(x))
print(GumbelKNNSampler(sampler.similarity, scale=1.0).plan(x))

# %%
# A task that needs neighbours
# ----------------------------
#
# Nodes lie on a circle. Each observes the noisy value of a function at its position,
# and predicts the mean of that function 110 degrees further on and 110 degrees back
# (:class:`~torch_geometric_gsl.datasets.HiddenRelation`). Each graph has its own
# function, so that none can be memorised: the target depends on the values of *other*
# nodes, and the model is not told which ones.

train = HiddenRelation(150, delta=110, seed=1)
test = HiddenRelation(20, delta=110, seed=2)
data = test[0]
print(data.x.shape, data.pos.shape, data.y.shape)

# %%
# My own network
# --------------
#
# It is plain PyTorch Geometric except for the line that samples edges. ``GraphConv``
# adds a node's own features, multiplied by a :term:`root weight`, to the sum of its
# neighbours. Any layer on a learned graph should do this: if neighbours are wrong, the
# node still has its own features.


class MyGNN(torch.nn.Module):
    def __init__(self, edges):
        super().__init__()
        self.edges = edges
        self.conv = GraphConv(1, 16)
        self.lin = torch.nn.Linear(16, 1)

    def forward(self, data):
        edge_index, edge_weight = self.edges(data.pos)
        return self.lin(F.elu(self.conv(data.x, edge_index, edge_weight)))


# %%
# Which similarity? Related nodes here are neither similar nor opposite. The *neural
# Gaussian* similarity is a :term:`bell`: a function of the cosine of two positions that
# has one peak and falls on both sides. The position of the peak is learned; initially
# it is wide, at a cosine of 0, an angle of 90 degrees.
#
# Two parameters control the sampling. The :term:`scale` multiplies the scores: a large
# one makes the sampling distribution sharper; here it is learned. The temperature
# :term:`tau` sets how the weight of each single draw is spread over candidates: at 1
# many have a part of it, at 0.1 one has nearly all of it.


def learned():
    bell = NeuralGaussianSimilarity(2, bias=True, centre='tanh')
    return GumbelKNNSampler(bell, k=20, tau=1.0, scale=5.0)


def fit(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for graph in train:  # Each is seen once.
        optimizer.zero_grad()
        (model(graph) - graph.y).square().mean().backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def error(model):
    wrong = sum((model(graph) - graph.y).square().mean() for graph in test)
    return float(wrong / sum(graph.y.var(correction=0) for graph in test))


seed_everything(0)
model = fit(MyGNN(learned()))
print(f'squared error over variance: {error(model):.2f}')

# %%
# Controls
# --------
#
# The same network with neighbours drawn at random, and two models of PyTorch Geometric
# on values and positions: GraphSAGE on the ten nearest nodes of the circle, and a
# multilayer perceptron, which has no neighbours. All are trained in the same way. An
# error of 1 is that of a model that predicts the mean.


class OnRows(torch.nn.Module):
    def __init__(self, model, *transforms):
        super().__init__()
        self.model, self.transforms = model, transforms

    def forward(self, data):
        x = torch.cat([data.x, data.pos], dim=1)
        graph = [near(Data(x=data.pos)).edge_index for near in self.transforms]
        return self.model(x, *graph)


random_nodes = GumbelKNNSampler(UniformSimilarity(2), k=20, tau=1.0)
seed_everything(0)
controls = {
    'random': MyGNN(random_nodes),
    'nearest': OnRows(GraphSAGE(3, 16, 2, 1), SimilarityKNNGraph(10)),
    'none (MLP)': OnRows(MLP([3, 16, 1], norm=None)),
}
errors = {'learned': error(model)}
errors |= {name: error(fit(control)) for name, control in controls.items()}
for name, value in errors.items():
    print(f'{name:<12}{value:.2f}')

# %%
# Here the learned graph helps, and no control does. What did it learn? The bell moved
# from 90 degrees to the relation. Left: the edge weights of a graph not used in
# training, over the angle between the two nodes. Right: the errors.

with torch.no_grad():
    edge_index, edge_weight = model.edges(data.pos)
pairs = data.pos[edge_index]
angle = (pairs[0] * pairs[1]).sum(dim=1).clamp(-1, 1).arccos().rad2deg()
print(f'mean angle of its edges: {(angle * edge_weight).sum() / 200:.0f} degrees')

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout='constrained')
left.hist(angle, bins=60, range=(0, 180), weights=edge_weight / 200, color='C0')
left.axvline(110, color='C1', label='the relation')
left.set(xlabel='angle between neighbours, degrees', ylabel='share of the weight')
left.legend()
right.bar(list(errors), list(errors.values()), color=['C1', 'C0', 'C0', 'C0'])
right.axhline(1, color='grey', linewidth=1)
right.set(ylabel='squared error over variance', xlabel='neighbours')
plt.show()

# %%
# This task suits a bell. The bell is initially wide, so that gradients move it to the
# relation from any angle: of ten seeds at eight angles it finds 80 of 80. On tables
# where a row's own columns determine its label a learned graph gains
# nothing: :doc:`/auto_gallery/plot_02_my_table`.
#
# Layers without edge weights
# ---------------------------
#
# A layer such as ``SAGEConv`` ignores ``edge_weight``. It can *use* a learned graph,
# with ``replace=False`` for exactly ``k`` distinct neighbours per node, but cannot
# *train* one, since no gradients flow through it to the similarity: train with a layer
# that takes weights, then replace it.

sampler = GumbelKNNSampler(model.edges.similarity, k=10, replace=False, loop=False)
edge_index, _ = sampler.eval()(data.pos)
print(SAGEConv(1, 4)(data.x, edge_index).shape, torch.bincount(edge_index[1]).unique())

# %%
# The next page, :doc:`/auto_gallery/plot_05_any_good`, checks whether a graph of your
# own data helps. All similarities and options: :doc:`/internals/sampler`.
