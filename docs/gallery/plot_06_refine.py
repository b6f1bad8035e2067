r"""
Refine a graph
==============

Your data has a graph, and some of its edges are wrong. This page makes such a graph and
repairs it in three steps: train networks on the graph, on the nearest rows and on both,
and average their predictions; reweight the edges by how well these predictions agree,
and add the nearest rows; train your network on the result.

It needs ``pip install '.[sklearn,plot]'`` in a clone of the repository.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.nn.models import GCN, MLP, GraphSAGE
from torch_geometric.utils import coalesce, stochastic_blockmodel_graph, to_undirected

from torch_geometric_gsl.diagnostics import describe_graph
from torch_geometric_gsl.transforms import RefineGraph, SimilarityKNNGraph
from torch_geometric_gsl.visualization import explore

# %%
# A graph with wrong edges
# ------------------------
#
# Five hundred handwritten digits, with so much noise on the pixels that these no longer
# predict the digit well. A hundred have a label, and a hundred more are for validation.
# A given graph links images, and nine in ten of its edges join images of one digit.
# Then edges between random pairs are added: three times as many, or six times.

NUM_NODES = 500
seed_everything(0)
images, labels = (
    torch.from_numpy(array[:NUM_NODES]) for array in load_digits(return_X_y=True)
)
order = labels.argsort(stable=True)
images, y = images[order].float(), labels[order]
x = images - images.mean(dim=0) + 6 * torch.randn(images.shape)
x = F.normalize(x)
chance = torch.full((10, 10), 0.001).fill_diagonal_(0.08)
observed = stochastic_blockmodel_graph(y.bincount().tolist(), chance)


def add_random(share):
    wrong = torch.randint(NUM_NODES, (2, int(share * observed.size(1) / 2)))
    return coalesce(torch.cat([observed, to_undirected(wrong)], dim=1))


graphs = {'as given': observed, '+300 %': add_random(3.0), '+600 %': add_random(6.0)}
for name, edge_index in graphs.items():
    summary = describe_graph((edge_index, torch.ones(edge_index.size(1))), y)
    print(
        f'{name:<9} {summary.num_edges} edges, {summary.homophily:.0%} join one digit'
    )

# %%
# First networks
# --------------
#
# All are trained in the same way, and keep the epoch with the lowest validation loss.
# If class probabilities of a teacher are given as ``prob``, they are targets for nodes
# without a training label.

train, val, test = torch.randperm(NUM_NODES).split([100, 100, 300])


def fit(model, edge_index=None, edge_weight=None, prob=None):
    graph = [tensor for tensor in (edge_index, edge_weight) if tensor is not None]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    least = torch.inf
    for _ in range(150):
        optimizer.zero_grad()
        out = model.train()(x, *graph)
        loss = F.cross_entropy(out[train], y[train])
        if prob is not None:
            untrained = torch.cat([val, test])
            loss = loss + F.cross_entropy(out[untrained], prob[untrained])
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            out = model.eval()(x, *graph)
        if (loss := F.cross_entropy(out[val], y[val])) < least:
            least, best = loss, out.softmax(dim=1)
    return best


def gcn():
    return GCN(64, 64, 2, 10, dropout=0.5)


def first_networks(edge_index):
    near = SimilarityKNNGraph(10)(Data(x=x))
    both = RefineGraph(10)(Data(x=x, edge_index=edge_index))
    return {
        'MLP': fit(MLP([64, 64, 10], dropout=0.5, norm=None)),
        'GCN': fit(gcn(), edge_index),
        'GraphSAGE': fit(GraphSAGE(64, 64, 2, 10, dropout=0.5), edge_index),
        'nearest rows, GCN': fit(gcn(), near.edge_index, near.edge_weight.clamp(min=0)),
        'given and nearest, GCN': fit(gcn(), both.edge_index, both.edge_weight),
    }


# %%
# Mixture
# -------
#
# The mixture averages the predictions with the weights that maximise the likelihood of
# the validation labels. It selects the better graphs, and costs no more training.


def mix(probs):
    likely = torch.stack([prob[val, y[val]] for prob in probs], dim=1).clamp(min=1e-6)
    weight = torch.full((len(probs),), 1 / len(probs))
    for _ in range(200):  # Expectation maximisation, with one maximum.
        share = likely * weight
        weight = (share / share.sum(dim=1, keepdim=True)).mean(dim=0)
    return sum(w * prob for w, prob in zip(weight, probs, strict=True))


# %%
# Refine
# ------
#
# :class:`~torch_geometric_gsl.transforms.RefineGraph` weights each edge, given or
# added, by the probability that both ends have the same digit,
# :math:`\mathbf{p}_i^{\top} \mathbf{p}_j`. Known labels replace predictions. Then any
# network that takes edge weights is trained on the refined graph, here the GCN again:
# once on the labels only, and once also on the predictions of the mixture ("taught").


def refined_networks(edge_index, mixture):
    prob = mixture.clone()
    prob[train] = F.one_hot(y[train], 10).float()
    data = Data(x=x, edge_index=edge_index, prob=prob, y=y)
    data = RefineGraph(10, prob='prob')(data)
    graph = data.edge_index, data.edge_weight
    probs = {
        'MLP, taught': fit(MLP([64, 64, 10], dropout=0.5, norm=None), prob=prob),
        'refined, GCN': fit(gcn(), *graph),
        'refined, GCN, taught': fit(gcn(), *graph, prob=prob),
    }
    return probs, data


def accuracy(prob):
    return float((prob.argmax(dim=1) == y)[test].float().mean())


scores, refined = {}, {}
for name, edge_index in graphs.items():
    probs = first_networks(edge_index)
    probs['mixture'] = mix([*probs.values()])
    last, refined[name] = refined_networks(edge_index, probs['mixture'])
    scores[name] = {method: accuracy(prob) for method, prob in (probs | last).items()}

print(f'{"":<23}' + ''.join(f'{name:>10}' for name in graphs))
for method in scores['as given']:
    print(f'{method:<23}' + ''.join(f'{row[method]:>10.1%}' for row in scores.values()))

# %%
# On the graph as given a GCN needs no help, and refining does no harm. With three
# random edges for each given one, the mean of given edges and nearest rows is far more
# accurate than both of its parts, and the refined graph is still better. The last rows
# separate the effects of the graph and of the teacher: the MLP taught by the mixture
# uses no edges. This is one split of one table; :doc:`/guide/mend` has a
# graph changed by an attacker.

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout='constrained')
names = [*graphs]
shown = ('MLP', 'GCN', 'nearest rows, GCN', 'given and nearest, GCN', 'mixture')
for method in (*shown, 'refined, GCN, taught'):
    style = 'o-k' if method.startswith('refined') else '.:'
    left.plot(names, [scores[name][method] for name in names], style, label=method)
left.set(xlabel='random edges added', ylabel='accuracy on test nodes')
left.legend(fontsize=8)

before = [float((y[e[0]] == y[e[1]]).float().mean()) for e in graphs.values()]
after = []
for data in refined.values():
    source, target = data.edge_index
    same = (y[source] == y[target]).float()
    after.append(float((same * data.edge_weight).sum() / data.edge_weight.sum()))
places = torch.arange(len(names))
right.bar(places - 0.2, before, 0.4, label='given edges', color='C1')
right.bar(places + 0.2, after, 0.4, label='weight of the refined graph', color='k')
right.set_xticks(places, names)
right.set(ylabel='share that joins one digit', ylim=(0, 1.25))
right.legend(fontsize=8)
plt.show()

# %%
# The refined graph
# -----------------
#
# ``data`` holds the refined and the given graph, for any other network. To explore
# both, write a page that shows the images and the neighbours of nodes.
# :func:`~torch_geometric_gsl.visualization.explore` needs no internet connection, and
# its readers need only a browser.

data = refined['+300 %']
print(data)
equal = torch.ones(data.observed_edge_index.size(1))
explore(
    {
        'given': (data.observed_edge_index, equal),
        'refined': (data.edge_index, data.edge_weight),
    },
    data=Data(x=x, y=y),
    images=images.view(-1, 8, 8),
    path='plot_06_refine_explorer.html',
    title='Digits, a noisy graph and the refined one',
    max_edges=3000,
    max_features=0,
)

# %%
# `Open this page <plot_06_refine_explorer.html>`__. To learn the weights of given edges
# in training, pass the edges to a :class:`~torch_geometric_gsl.nn.GSLNet`; more on
# candidates, priors and freezing: :doc:`/guide/own_gnn`.
