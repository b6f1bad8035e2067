r"""
Learn the graph of a million rows
=================================

A million rows have :math:`10^{12}` pairs, eight terabytes if each is stored as one
number. This page learns a graph without visiting most of them. It shows which parts are
exact, which are estimated, and what a million rows cost.

It runs with 10,000 rows, so that it takes some seconds; raise ``NUM_ROWS`` to try more.
It needs ``pip install '.[plot]'`` in a clone of the repository.
"""

import warnings

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import cross_entropy
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.nn.models import MLP, GraphSAGE

from torch_geometric_gsl import Budget, GSLNet, GumbelKNNSampler, LinearSimilarity
from torch_geometric_gsl.transforms import SimilarityKNNGraph

NUM_ROWS = 10_000

# %%
# The table: clusters on a sphere, 128 columns. The clusters belong to ten classes, and
# one row in twenty has a label.


def table(num_rows, seed=0):
    seed_everything(seed)
    centres = torch.nn.functional.normalize(torch.randn(int(num_rows**0.5), 128))
    cluster = torch.randint(len(centres), (num_rows,))
    noise = torch.nn.functional.normalize(torch.randn(num_rows, 128))
    return centres[cluster] + 0.1 * noise, cluster % 10


x, y = table(NUM_ROWS)
train = torch.arange(0, NUM_ROWS, 20)
test = torch.arange(1, NUM_ROWS, 20)

# %%
# Sample without scoring all pairs
# --------------------------------
#
# Neighbours are drawn by a :term:`race`. Every candidate arrives after a random time,
# which tends to be earlier for a larger score, and the first to arrive is the
# neighbour. To find the first arrivals, the race *proposes* candidates at random,
# instead of scoring all, and accepts each with a probability that grows with its score,
# under a :term:`bound` that no score exceeds. The sampling distribution is exact, as if
# all pairs had been scored. ``plan`` predicts how many proposals a draw takes.
#
# The score is the cosine of two rows. The :term:`scale` multiplies it: at 1 all rows
# are almost equally likely, and one bound for all is enough; at 10 they are not, and
# bounds for the rows of a :term:`cluster` keep the proposals few.


def sampler(scale):
    return GumbelKNNSampler(LinearSimilarity(128), k=5, scale=scale)


sizes = [NUM_ROWS // 8, NUM_ROWS // 4, NUM_ROWS // 2, NUM_ROWS]
looks = {1.0: [], 10.0: []}
for size in sizes:
    rows, _ = table(size)
    for scale, values in looks.items():
        plan = sampler(scale).plan(rows)
        values.append(5 * plan.num_proposals * size)
        print(
            f'{size:>6} rows, scale {scale:<3g}{plan.method}, {plan.num_proposals:.0f}'
        )

# %%
# Train
# -----
#
# Two networks learn their graph. The first connects rows with rows. The second connects
# them with 100 :term:`transition nodes <transition node>`: learned nodes that are no
# rows of the table, which collect messages from all rows and send them to all. With
# these, evaluation is linear, too, but the network belongs to the rows of one table.
# Each layer has a :term:`root weight` for a row's own columns; the temperature
# :term:`tau`, 0.25 in the paper, puts nearly all weight of a draw on one row. The
# :term:`controls <control>` are models of PyTorch Geometric: GraphSAGE on the ten
# nearest rows, whose search scores all pairs, and a multilayer perceptron.


def fit(model, *graph):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(15):
        optimizer.zero_grad()
        cross_entropy(model(x, *graph)[train], y[train]).backward()
        optimizer.step()
    return model.eval()


widths = 128, 32, 2, 10
sharp = {'similarity': 'linear', 'z_channels': -1, 'scale': 10.0, 'loop': False}
transition = {'num_transition_nodes': 100, 'num_nodes': NUM_ROWS}
near = SimilarityKNNGraph(10)(Data(x=x)).edge_index
seed_everything(0)
models = {
    'rows to rows': (GSLNet.paper(*widths, **sharp),),
    'transition nodes': (GSLNet.paper(*widths, **transition),),
    'nearest rows': (GraphSAGE(*widths, act='elu'), near),
    'no graph, MLP': (MLP([128, 32, 10], act='elu', norm=None),),
}
for name, (model, *graph) in models.items():
    fit(model, *graph)
    with torch.no_grad():
        hit = model(x, *graph).argmax(dim=1) == y
    print(f'{name:<18} {hit[test].float().mean():.1%}')

# %%
# Fifteen steps are too few to train a network, but show what each one can use. Rows of
# a cluster share a class, so neighbours reveal it before the network has learned it: on
# this table a graph pays. Transition nodes, drawn nearly uniformly at a scale of 1,
# carry less information on clusters. The nearest rows are as good a graph here as the
# learned one; their search scores all pairs, but only once.
#
# Evaluate
# --------
#
# Evaluation is noise-free and sums over *all* rows, which is quadratic. Beyond
# ``Budget.eval_pairs``, about nine billion by default, it samples the sources, and a
# warning gives the error measured on some rows. To show it, the limit is lowered here
# to a tenth of the pairs. A sample hardly misses clusters of a hundred rows; where only
# a handful of rows matter to each target, a sample misses them, and the warning gives a
# large error. Then set ``eval_k``.

(model,) = models['rows to rows']
with warnings.catch_warnings(record=True) as caught, torch.no_grad():
    warnings.simplefilter('always')
    model.convs[0].sampler.budget = Budget(eval_pairs=NUM_ROWS**2 // 10)
    model(x)
print(caught[0].message)

# %%
# Cost of a million rows
# ----------------------
#
# Left: the pairs that a layer of this page scores in a training step, from the plans.
# Right: the seconds of a step of two layers on two cores (:doc:`/internals/benchmarks`;
# ``method='race'``, 32 hidden units, scale 1). From there, too:
#
# * A step of a million rows with 128 columns takes 34.8 s and 3.1 GB at a scale of 1,
#   on an Intel Xeon before races ran in C++, and 21.5 s on an AMD EPYC.
# * Where scores are sharp (a bell, scale 5, clusters as narrow as these) a layer takes
#   61 s on one core.
# * Evaluation by 8,192 sampled sources takes 28 s at a scale of 1, with an error of
#   0.028 for sums with a root mean square of 0.10.
# * None of this was measured on a GPU.

ROWS = [3_327, 19_717, 34_493, 100_000, 1_000_000]
SECONDS = [0.095, 0.52, 1.1, 2.4, 34.8]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout='constrained')
left.loglog(sizes, [size**2 for size in sizes], 'k--', label='all pairs')
for scale, values in looks.items():
    left.loglog(sizes, values, marker='o', label=f'proposals, scale {scale:g}')
left.minorticks_off()
left.set_xticks(sizes, [f'{size:,}' for size in sizes])
left.set(xlabel='rows', ylabel='pairs looked at in a layer')
left.legend(fontsize=8)
right.loglog(ROWS, SECONDS, marker='o')
right.set(xlabel='rows', ylabel='seconds a training step')
plt.show()

# %%
# A hundred steps take an hour on two cores. First train on a tenth of the rows, with an
# MLP as control, as in :doc:`/auto_gallery/plot_05_any_good`: a graph that gains
# nothing there will hardly gain anything with all rows.
