"""Learn the graphs between two types of nodes, documents and their words.

Data: posts of ten newsgroups (20News), without a graph. The features of a document are
the weights of its words, those of a word come from a singular value decomposition of
the same table. Prints the test accuracy of four models, mean and standard deviation
over the splits. Two are controls of PyG without a learned graph: an MLP, and GraphSAGE
on the ten nearest documents. --picture FILE draws the learned neighbours of some
documents.
"""

import argparse
import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import fetch_20newsgroups
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor
from torch.nn import functional as F
from torch_geometric import seed_everything
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn.models import MLP, GraphSAGE
from torch_geometric.transforms import RandomNodeSplit
from tqdm import trange

from torch_geometric_gsl import GSLNet, HeteroLatentGraphConv
from torch_geometric_gsl.transforms import SimilarityKNNGraph

IN, HAS = ('word', 'in', 'document'), ('document', 'has', 'word')
NEAR = ('document', 'near', 'document')
# Both models with learned graphs compare documents by their features. Documents and
# words have different features, and are compared by learned projections.
FIXED = {'similarity': 'linear', 'tau': 0.25, 'train_scale': False}
COSINE = {**FIXED, 'scale': 40.0, 'z_channels': -1}
PROJECTED = {**FIXED, 'scale': 10.0}
MODELS = 'MLP', 'nearest rows', 'GSLNet', 'with words'
GROUPS = [
    *('alt.atheism', 'comp.sys.ibm.pc.hardware', 'misc.forsale', 'rec.autos'),
    *('rec.sport.hockey', 'sci.crypt', 'sci.electronics', 'sci.med', 'sci.space'),
    'talk.politics.guns',
]
HIDDEN, WORD_CHANNELS, EVERY, WORDS = 64, 64, 5, 4


def read(dataset: str) -> Data:
    """Return the posts of ten newsgroups, or features and classes of an .npz file."""
    if dataset != '20News':
        table = np.load(dataset)
        x, y = (torch.from_numpy(table[name]) for name in 'xy')
        names = [f'class {label}' for label in y.unique().tolist()]
        return Data(x=x, y=y, class_names=names)
    posts = fetch_20newsgroups(subset='all', categories=GROUPS)
    words = TfidfVectorizer(stop_words='english', min_df=0.05, smooth_idf=False)
    x = torch.from_numpy(words.fit_transform(posts.data).toarray()).float()
    return Data(
        x=x,
        y=torch.from_numpy(posts.target),
        class_names=posts.target_names,
        feature_names=words.get_feature_names_out().tolist(),
    )


def add_words(table: Data) -> HeteroData:
    """Return documents and words; compute the features of words from the documents."""
    assert table.x is not None
    x = table.x.to_dense()
    _, strength, direction = torch.svd_lowrank(x, q=min(WORD_CHANNELS, *x.shape))
    data = HeteroData()
    data['document'].x = x
    data['word'].x = direction * strength
    return data


class DocumentNet(torch.nn.Module):
    """Two layers of documents and words, which classify the documents."""

    def __init__(self, widths: dict[str, int], num_classes: int) -> None:
        super().__init__()
        near = COSINE | {'z_channels': widths['document']}
        # Only documents have labels: the last layer needs no relation to words.
        last_relations = {IN: PROJECTED, NEAR: near}
        relations = {IN: PROJECTED, HAS: PROJECTED, NEAR: near}
        self.conv1 = HeteroLatentGraphConv(widths, HIDDEN, relations)
        self.conv2 = HeteroLatentGraphConv(HIDDEN, num_classes, last_relations)

    def forward(self, x_dict: dict[str, Tensor]) -> Tensor:
        # Both layers compare documents by their features.
        z_dict = {'document': x_dict['document']}
        hidden = self.conv1(x_dict, z_dict=z_dict)
        for node_type, h in hidden.items():
            hidden[node_type] = F.dropout(F.elu(h), 0.5, self.training)
        out: Tensor = self.conv2(hidden, z_dict=z_dict)['document']
        return out


def make(name: str, data: HeteroData, num_classes: int) -> list[Any]:
    """Return a model of documents, or of documents and words, and its inputs."""
    widths = {node_type: data[node_type].num_features for node_type in data.node_types}
    sizes = HIDDEN, 2, num_classes
    x, width = data['document'].x, widths['document']
    if name == 'MLP':
        return [MLP([width, HIDDEN, num_classes], dropout=0.5, act='elu', norm=None), x]
    if name == 'nearest rows':
        near: Any = SimilarityKNNGraph(10)(Data(x=x))
        return [GraphSAGE(width, *sizes, dropout=0.5, act='elu'), x, near.edge_index]
    if name == 'GSLNet':
        options: dict[str, Any] = COSINE
        return [GSLNet(width, *sizes, act='elu', **options), x]
    return [DocumentNet(widths, num_classes), data.x_dict]


def train(model: Any, inputs: list[Any], table: Any, epochs: int, name: str) -> float:
    """Train a model, and return its test accuracy at the best validation epoch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    best = test = -1.0
    for epoch in trange(1, epochs + 1, desc=name, leave=False, disable=None):
        optimizer.zero_grad()
        out, mask = model.train()(*inputs), table.train_mask
        F.cross_entropy(out[mask], table.y[mask]).backward()
        optimizer.step()
        if epoch % EVERY == 0 or epoch == epochs:
            with torch.no_grad():
                hit = (model.eval()(*inputs).argmax(dim=1) == table.y).double()
            if (score := float(hit[table.val_mask].mean())) > best:
                best, test = score, float(hit[table.test_mask].mean())
                state = copy.deepcopy(model.state_dict())
    model.load_state_dict(state)
    return 100 * test


def draw(model: Any, data: HeteroData, table: Data, words: list[str]) -> Any:
    """Draw the words with the largest weights of some documents, one per class."""
    from matplotlib import pyplot as plt

    labels, x = table.y, table.x
    assert isinstance(labels, Tensor)
    assert x is not None
    x, count = x.to_dense(), min(WORDS, len(words))
    shown = [int((labels == label).nonzero()[0]) for label in labels.unique()[:6]]
    model.eval()
    with torch.no_grad():
        edge_index, weight = model.conv1.graphs(data.x_dict)[IN]
    figure, axes = plt.subplots(2, 3, figsize=(9, 4), layout='tight')
    for axis in axes.flat:
        axis.axis('off')
    for axis, document in zip(axes.flat, shown, strict=False):
        is_candidate = edge_index[1] == document
        value, order = weight[is_candidate].sort(descending=True)
        axis.set_title(table.class_names[int(labels[document])], fontsize=9)
        axis.set(xlim=(-0.1, 1.8), ylim=(-count, count))
        axis.plot(0, 0, 's', color='tab:blue', markersize=14)
        for rank, word in enumerate(
            edge_index[0][is_candidate][order[:count]].tolist()
        ):
            height, width = count - 2 * rank - 1, 0.5 + 8 * float(value[rank])
            color = 'tab:blue' if x[document, word] > 0 else 'tab:orange'
            axis.plot([0, 1], [0, height], color=color, linewidth=width, zorder=0)
            axis.text(1.05, height, words[word], va='center', fontsize=9, color=color)
    return figure


def main() -> None:
    """Train all models on each split, and print their accuracies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        '--dataset', default='20News', help='20News, or an .npz file with x and y'
    )
    parser.add_argument('--documents', type=int, default=2000, help='documents to use')
    parser.add_argument('--epochs', type=int, default=100)
    parser.add_argument('--seeds', type=int, default=3, help='number of splits')
    parser.add_argument('--quick', action='store_true', help='a short trial')
    parser.add_argument('--picture', type=Path, help='file of the drawing')
    args = parser.parse_args()
    if args.quick:
        args.documents, args.epochs, args.seeds = 120, 4, 2
    all_documents = read(args.dataset)
    table = all_documents.subgraph(
        torch.arange(args.documents)[: all_documents.num_nodes]
    )
    seed_everything(0)
    data, num_classes = add_words(table), len(table.class_names)
    print(
        f'{"":14}test accuracy in %, {args.seeds} splits of {table.num_nodes} documents'
    )
    for name in MODELS:
        accuracies = []
        for seed in range(args.seeds):
            seed_everything(seed)
            split = RandomNodeSplit(num_val=0.25, num_test=0.25)(table.clone())
            model, *inputs = make(name, data, num_classes)
            accuracies.append(train(model, inputs, split, args.epochs, name))
        spread, mean = torch.std_mean(torch.tensor(accuracies), correction=0)
        print(f'{name:14}{mean:.1f} ± {spread:.1f}')
    if args.picture is not None:
        unknown = [f'word {index}' for index in range(data['word'].num_nodes)]
        words = all_documents.get('feature_names', unknown)
        draw(model, data, table, words).savefig(args.picture, dpi=120)


if __name__ == '__main__':
    main()
