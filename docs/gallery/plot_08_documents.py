r"""
Classify documents with few labels
==================================

You have many documents and labels for a few of them. Documents that share words can
share labels. This page turns texts into sparse rows, learns a graph, and counts how
many labels that saves.

It needs ``pip install '.[sklearn,plot]'`` in a clone of the repository.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading

from torch_geometric_gsl.sklearn import GSLClassifier

# %%
# A small corpus
# --------------
#
# This page needs no download: it generates its documents, short notes on six topics. A
# note uses *part* of its topic, ten consecutive words of the list, and half of its
# words are small talk. Two notes on one topic may have no word in common, but other
# notes connect them.

TOPICS = {
    'kitchen': """
        flour yeast dough knead oven crust loaf butter sugar cream vanilla cake frosting
        chocolate cocoa dessert custard egg whisk omelette pan skillet fry onion garlic
        olive tomato basil sauce pasta boil salt pepper broth soup ladle
    """,
    'sky': """
        sun eclipse corona flare planet mercury venus mars rover crater moon tide orbit
        satellite rocket launch comet asteroid meteor telescope lens mirror observatory
        star dwarf giant supernova pulsar nebula cluster galaxy halo quasar redshift
        horizon universe
    """,
    'pitch': """
        whistle referee card foul penalty goalkeeper glove save crossbar goal striker
        header cross winger dribble pass midfield captain armband tackle defender
        offside corner keeper bench substitute coach formation training fitness injury
        physio stadium fans anthem derby
    """,
    'garden': """
        seed soil compost worm spade trench potato carrot beet row hoe weed nettle
        thistle mulch straw strawberry raspberry cane hedge shears prune branch apple
        orchard bee hive honey blossom tulip bulb rose thorn petal vase bouquet
    """,
    'music': """
        score clef staff note chord scale piano pedal hammer string violin bow cello
        quartet chamber concerto soloist orchestra conductor baton brass trumpet
        trombone jazz swing saxophone blues guitar riff amplifier drum rhythm beat tempo
        dance encore
    """,
    'court': """
        contract clause signature lease tenant landlord rent deposit claim damages
        plaintiff lawsuit judge gavel hearing witness oath testimony evidence
        fingerprint detective police arrest handcuffs suspect alibi jury verdict guilty
        sentence prison parole appeal statute amendment parliament
    """,
}
SMALL_TALK = """
    today again people thing really maybe little good year time work find make know
    think come look want give use tell ask seem feel try leave call keep begin help show
    hear play run move live believe bring happen write sit stand lose pay meet learn
    change lead understand watch follow stop create speak read spend grow open walk
"""
small_talk = SMALL_TALK.split()
random = np.random.default_rng(0)


def note(topic, length=14):
    words = TOPICS[topic].split()
    start = random.integers(len(words))
    topic_words = [words[(start + i) % len(words)] for i in range(10)]
    lists = [
        topic_words if draw < 0.5 else small_talk for draw in random.random(length)
    ]
    return ' '.join(random.choice(vocabulary) for vocabulary in lists)


names = list(TOPICS)
y = np.arange(420) % len(names)
texts = [note(names[label]) for label in y]
for label in range(2):
    print(f'{names[label]}: {texts[label]}')

# %%
# Texts as rows
# -------------
#
# Scikit-learn counts words, and gives rare ones larger weights. The result is sparse:
# each row has a dozen entries of almost three hundred. It stays sparse here.

x = TfidfVectorizer().fit_transform(texts)
print(x.shape, f'{x.nnz / x.shape[0]:.0f} entries a row')

# %%
# Few labels
# ----------
#
# Unlabelled rows have the label -1. They are nodes of the graph with words but without
# a label. The learned graph weights the neighbours of each note by a learned distance;
# the :term:`scale`, which sets how sharp these weights are, is learned as well. A note
# sees the labels of its neighbours, but not those of their neighbours.
#
# The :term:`controls <control>`: the same network without a graph; logistic regression;
# and label spreading, scikit-learn's method for few labels, which propagates labels on
# the graph of the five nearest notes. The blend has both networks and a logistic
# regression.
# ``transduction_`` has the prediction of each note from the others.


models = {
    'blend': lambda seed: GSLClassifier(random_state=seed),
    'learned graph': lambda seed: GSLClassifier('learned', random_state=seed),
    'no graph': lambda seed: GSLClassifier('none', random_state=seed),
    'logistic regression': lambda seed: LogisticRegression(C=100),
    'label spreading': lambda seed: LabelSpreading(kernel='knn', n_neighbors=5),
}


def accuracy(name, per_topic, seed):
    rng = np.random.default_rng(seed)
    labelled = np.concatenate(
        [rng.choice(np.flatnonzero(y == c), per_topic, False) for c in np.unique(y)]
    )
    is_known = np.isin(np.arange(len(y)), labelled)
    # Logistic regression cannot use rows without a label.
    rows = is_known if name == 'logistic regression' else slice(None)
    with np.errstate(invalid='ignore'):  # Label spreading where no label arrives.
        model = models[name](seed).fit(x[rows], np.where(is_known, y, -1)[rows])
    # Graphs predict each note from the others.
    is_alone = name == 'logistic regression'
    predicted = model.predict(x) if is_alone else model.transduction_
    return (predicted == y)[~is_known].mean()


numbers = (2, 5, 20)
accuracies = {name: [accuracy(name, n, seed=0) for n in numbers] for name in models}
print(f'{"labels a topic":<20}' + ''.join(f'{n:>8}' for n in numbers))
for name, values in accuracies.items():
    print(f'{name:<20}' + ''.join(f'{value:>8.1%}' for value in values))

figure, ax = plt.subplots(figsize=(6.5, 3.5), layout='constrained')
for name, values in accuracies.items():
    style = {'marker': 'o'} if name == 'learned graph' else {'linestyle': '--'}
    ax.plot([str(num_labels) for num_labels in numbers], values, label=name, **style)
ax.set(xlabel='labels a topic', ylabel='accuracy on notes without a label')
ax.legend(fontsize=8)
plt.show()

# %%
# **With few labels having a graph matters more than learning it.** Label spreading,
# which trains nothing, is best with two and with five labels per topic, since it
# propagates labels along chains of notes. Of the networks the learned graph is ahead of
# the one without a graph there; its distance has to be learned from labels, and a dozen
# are few. With twenty labels per topic no graph is needed. This corpus was generated so
# that notes are connected, and this is one draw of the labels; your documents may
# differ, and :doc:`/auto_gallery/plot_05_any_good` shows how to check.
#
# Which notes are neighbours?
# ---------------------------
#
# The graph of a fitted model shows the neighbours of single documents and their
# weights. Nearly half of the notes have a label here.

is_known = np.arange(len(y)) < 200
model = GSLClassifier('learned', random_state=0).fit(x, np.where(is_known, y, -1))
row = model.graph_[300].tocoo()
print(f'{texts[300]}\n')
for i in np.argsort(-row.data)[:3]:
    print(f'{row.data[i]:.2f}  {texts[row.col[i]]}')

# %%
# Real documents
# --------------
#
# scikit-learn downloads the 20 newsgroups; the paper takes ten of the groups and the
# 236 words of at least 5 % of the posts.
#
# .. code-block:: python
#
#    from sklearn.datasets import fetch_20newsgroups
#    from sklearn.feature_extraction.text import TfidfVectorizer
#
#    posts = fetch_20newsgroups(subset='all', categories=['sci.med', 'sci.space'])
#    words = TfidfVectorizer(stop_words='english', min_df=0.05)
#    X = words.fit_transform(posts.data)
#
# For your own texts follow this page: ``TfidfVectorizer``, then a
# :class:`~torch_geometric_gsl.sklearn.GSLClassifier`. :doc:`/faq` leads to numbers
# on real documents, under few labels.
