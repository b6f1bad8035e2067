r"""
Predict new rows
================

A learned graph connects the rows of the training table. A new row takes its neighbours
from those training rows only. This page trains a network on handwritten digits,
predicts new ones, shows their neighbours, and loads the model in another process.

It needs ``pip install '.[sklearn,plot]'`` in a clone of the repository.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from torch_geometric import seed_everything

from torch_geometric_gsl import KNNGCN, GSLNet, MLPClassifier

# %%
# Six hundred digits are here today, the others come tomorrow. New rows are scaled as
# those of training were.

digits = load_digits()
x, y = digits.data[:600], torch.from_numpy(digits.target[:600])
x_new, y_new = digits.data[600:], torch.from_numpy(digits.target[600:])
scaler = StandardScaler().fit(x)
x, x_new = (torch.from_numpy(scaler.transform(part)).float() for part in (x, x_new))
print(x.shape, x_new.shape)

# %%
# A network that learns its graph
# -------------------------------
#
# Each layer of :class:`~torch_geometric_gsl.nn.GSLNet` scores pairs of rows by a
# *similarity*, here the cosine of their pixels, and draws ``k`` neighbours for each
# row: the larger the score, the likelier. Two numbers say how this is done.
#
# * The :term:`scale` multiplies the scores before the draw: at 0 all rows are equally
#   likely, at 20 only the nearest have a chance. Here it begins at 10 and is learned.
# * The temperature :term:`tau` acts after that: it says how far a *single* draw is
#   spread. A small one gives nearly all weight to one row, a large one shares it among
#   several, so that gradients reach more of them.
#
# Each layer also has a :term:`root weight`, a matrix for the row's own features, which
# are added to what its neighbours send: ``loop=False`` keeps a row from being its own
# neighbour.

train = torch.arange(480)
held_out = torch.arange(480, 600)


def fit(model, epochs=50):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        model.loss(x, y, train).backward()
        optimizer.step()
    return model.eval()


seed_everything(0)
model = fit(GSLNet(64, 64, 2, 10, similarity='linear', act='elu'))
print(f'scale after training: {model.convs[0].sampler.log_scale.exp():.1f}')
print(f'rows held out: {model.score(x, y, held_out)["accuracy"]:.1%} right')

# %%
# Ask for new rows
# ----------------
#
# A pair holds the rows that new ones may be joined to, and the new ones. A model can
# also index the former; it is then asked as any other. In evaluation mode nothing is
# random.

with torch.no_grad():
    out = model((x, x_new))
    model.index(x)
    assert torch.equal(model(x_new), out)
predicted = model.predict(x_new)
print(predicted[:10].tolist())
print(y_new[:10].tolist())

# %%
# The answer to a row depends on no other row of the call: alone it gets what it gets in
# company, up to rounding.

with torch.no_grad():
    alone = torch.cat([model(row[None]) for row in x_new[:10]])
print(f'largest difference: {(alone - out[:10]).abs().max():.0e}')
assert torch.allclose(alone, out[:10], atol=1e-4)

# %%
# Which rows was it joined to?
# ----------------------------
#
# ``graphs`` returns the edges of each layer: sources are rows of training, targets the
# new ones. Left each new digit, right of it those with the largest weights.

with torch.no_grad():
    edge_index, edge_weight = model.graphs((x, x_new))[0]

figure, axes = plt.subplots(4, 6, figsize=(7, 5), layout='constrained')
for row, number in zip(axes, (2, 5, 7, 30), strict=True):
    row[0].imshow(digits.images[600 + number], cmap='Greys')
    row[0].set_title(f'new: {predicted[number]}', color='C1', fontsize=10)
    mine = edge_index[1] == number
    weight, order = edge_weight[mine].topk(5)
    for ax, value, source in zip(
        row[1:], weight, edge_index[0, mine][order], strict=True
    ):
        ax.imshow(digits.images[source], cmap='Greys')
        ax.set_title(f'{y[source]}: {value:.2f}', fontsize=10)
for ax in axes.flat:
    ax.set(xticks=[], yticks=[])
plt.show()

# %%
# Is it better than without a graph?
# ----------------------------------
#
# The same split, the same widths, the same training: a network that sees each row alone
# (an MLP), the same with messages from the five nearest rows (a GCN with a root
# weight), and the vote of the five nearest rows, which trains nothing.

seed_everything(0)
mlp = fit(MLPClassifier(64, 64, num_layers=2, out_channels=10))
seed_everything(0)
knn_gcn = fit(KNNGCN(64, 64, num_layers=2, out_channels=10, root_weight=True))
nearest = KNeighborsClassifier(5).fit(x[train], y[train])
with torch.no_grad():
    answers = {
        'learned graph': predicted,
        'nearest rows, GCN': knn_gcn((x, x_new)).argmax(dim=1),
        'no graph, MLP': mlp(x_new).argmax(dim=1),
        'vote of nearest rows': torch.from_numpy(nearest.predict(x_new)),
    }
for name, answer in answers.items():
    print(f'{name:<21} {(answer == y_new).float().mean():.1%} of new rows right')

# %%
# Numbers of one split and one seed: differences of a point or two mean nothing. They
# say that new rows are answered as well as rows held out were, and that on digits a
# learned graph is as good as the others, not better.
#
# Take it elsewhere
# -----------------
#
# The indexed rows are a part of ``state_dict``. Whoever loads it has all that it
# takes to answer new rows.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, 'model.pt')
    torch.save(model.state_dict(), path)
    other = GSLNet(64, 64, 2, 10, similarity='linear', act='elu').eval()
    other.load_state_dict(torch.load(path, weights_only=True))
assert torch.equal(other.predict(x_new), predicted)

# %%
# Which models answer new rows, and which cannot, is in :doc:`/guide/new_rows`. Next:
# :doc:`/auto_gallery/plot_04_own_gnn`.
