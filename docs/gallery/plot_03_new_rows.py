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
from torch.nn.functional import cross_entropy
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.nn.models import MLP, GraphSAGE

from torch_geometric_gsl import GSLNet
from torch_geometric_gsl.transforms import SimilarityKNNGraph

# %%
# Six hundred digits are known today, the others arrive later. New rows are scaled with
# the statistics of the training rows.

digits = load_digits()
x, y = digits.data[:600], torch.from_numpy(digits.target[:600])
x_new, y_new = digits.data[600:], torch.from_numpy(digits.target[600:])
scaler = StandardScaler().fit(x)
x, x_new = (torch.from_numpy(scaler.transform(rows)).float() for rows in (x, x_new))
print(x.shape, x_new.shape)

# %%
# A network that learns its graph
# -------------------------------
#
# Each layer of :class:`~torch_geometric_gsl.nn.GSLNet` scores pairs of rows by a
# *similarity*, here the cosine of their pixels, and samples ``k`` neighbours for each
# row, with higher probability for larger scores. Two parameters control the sampling.
#
# * The :term:`scale` multiplies the scores before the draw: at 0 all rows are equally
#   likely, at 20 only the nearest are likely. Here it starts at 10 and is learned.
# * The temperature :term:`tau` sets how the weight of a *single* draw is spread. A
#   small one puts nearly all weight on one row, a large one spreads it over several, so
#   that gradients flow to more of them.
#
# Each layer also has a :term:`root weight`, a matrix for the row's own features, which
# are added to the messages of its neighbours. With ``loop=False``, the default, no row
# is its own neighbour.

train = torch.arange(480)
held_out = torch.arange(480, 600)


def fit(model, *inputs):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(50):
        model.train()
        optimizer.zero_grad()
        cross_entropy(model(*inputs)[train], y[train]).backward()
        optimizer.step()
    return model.eval()


seed_everything(0)
model = fit(GSLNet(64, 64, 2, 10, similarity='linear', act='elu'), x)
print(f'scale after training: {model.convs[0].sampler.log_scale.exp():.1f}')
print(f'rows held out: {model.score(x, y, held_out)["accuracy"]:.1%} right')

# %%
# Apply it to new rows
# --------------------
#
# Pass a pair: the candidates, here the training rows, and the new rows. A model can
# also index the candidates; it then takes new rows like any other model. Evaluation
# mode is deterministic.

with torch.no_grad():
    out = model((x, x_new))
    model.index(x)
    assert torch.equal(model(x_new), out)
predicted = model.predict(x_new)
print(predicted[:10].tolist())
print(y_new[:10].tolist())

# %%
# The prediction of a row does not depend on other rows of the call: predicted one by
# one, rows have the same outputs, up to rounding.

with torch.no_grad():
    alone = torch.cat([model(row[None]) for row in x_new[:10]])
print(f'largest difference: {(alone - out[:10]).abs().max():.0e}')
assert torch.allclose(alone, out[:10], atol=1e-4)

# %%
# Which neighbours does it use?
# -----------------------------
#
# ``graphs`` returns the edges of each layer: sources are training rows, targets are new
# rows. Left: a new digit. Right of it: its neighbours with the largest weights.

with torch.no_grad():
    edge_index, edge_weight = model.graphs((x, x_new))[0]

figure, axes = plt.subplots(4, 6, figsize=(7, 5), layout='constrained')
for row, i in zip(axes, (2, 5, 7, 30), strict=True):
    row[0].imshow(digits.images[600 + i], cmap='Greys')
    row[0].set_title(f'new: {predicted[i]}', color='C1', fontsize=10)
    mine = edge_index[1] == i
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
# :term:`Controls <control>` with the same split, widths and training, two of them of
# PyTorch Geometric: an MLP, which sees each row alone; GraphSAGE, which has a root
# weight, on the ten nearest rows; and the majority vote of the five nearest rows, which
# trains nothing. GraphSAGE needs the graph of all rows, also of the new ones.

rows = torch.cat([x, x_new])
near = SimilarityKNNGraph(10)(Data(x=rows)).edge_index
models = {
    'nearest rows': (GraphSAGE(64, 64, 2, 10, dropout=0.5, act='elu'), rows, near),
    'no graph, MLP': (MLP([64, 64, 10], dropout=0.5, act='elu', norm=None), rows),
}
nearest = KNeighborsClassifier(5).fit(x[train], y[train])
predictions = {
    'learned graph': predicted,
    'vote of nearest rows': torch.from_numpy(nearest.predict(x_new)),
}
for name, (control, *inputs) in models.items():
    predictions[name] = fit(control, *inputs)(*inputs)[600:].argmax(dim=1)
for name, classes in predictions.items():
    print(f'{name:<21} {(classes == y_new).float().mean():.1%} of new rows right')

# %%
# Numbers of one split and one seed: differences of a point or two are not significant.
# New rows are predicted about as accurately as held-out rows, and on digits a learned
# graph is as good as the others, not better.
#
# Save and load
# -------------
#
# The indexed rows are part of ``state_dict``, so a loaded model needs no table to
# predict new rows.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, 'model.pt')
    torch.save(model.state_dict(), path)
    loaded = GSLNet(64, 64, 2, 10, similarity='linear', act='elu').eval()
    loaded.load_state_dict(torch.load(path, weights_only=True))
assert torch.equal(loaded.predict(x_new), predicted)

# %%
# :doc:`/guide/new_rows` says which models can predict new rows, and which cannot. Next:
# :doc:`/auto_gallery/plot_04_own_gnn`.
