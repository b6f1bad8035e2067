import pytest
import torch

from torch_geometric_gsl.diagnostics.summaries import (
    GraphSummary,
    LayerSummary,
    ModelSummary,
)


def graph(**labels):
    entropy = torch.tensor([0.0, 0.5, 1.0])
    return GraphSummary(3, 7, 2, 1, entropy, entropy.exp(), **labels)


def layer(**options):
    values = torch.tensor([1.0, 3.0])
    given = {'b': None, 'c': None, 'grad_norms': {}, **options}
    return LayerSummary('conv', 'Sampler()', values, values, values, 0.25, **given)


def numbers(text, name):
    """The numbers of the only row of that name."""
    (row,) = [line for line in text.splitlines() if line.strip().startswith(name)]
    return [float(number) for number in row.replace(name, '').split()]


def test_graph_summary():
    text = str(graph())
    assert text.startswith('7 edges (2 of weight zero) to 3 targets (1 without')
    # Minimum, quartiles, maximum, mean.
    assert numbers(text, 'entropy (nats)') == [0, 0.25, 0.5, 0.75, 1, 0.5]
    assert 'homophily' not in text
    text = str(graph(homophily=0.5, weighted_homophily=0.25, chance=0.125))
    assert numbers(text, 'edge homophily') == [0.5]
    assert numbers(text, 'weighted homophily') == [0.25]
    assert numbers(text, 'homophily by chance') == [0.125]


def test_layer_summary():
    text = str(layer())
    assert text.startswith('conv: Sampler()\n')
    assert numbers(text, 'effective candidates') == [1, 1.5, 2, 2.5, 3, 2]
    assert numbers(text, 'share') == [0.25]
    assert text.endswith('gradient norms: no parameters')


def test_layer_summary_with_bells():
    bells = {'b': torch.tensor([0.5, 0.5]), 'c': torch.tensor([0.25, 0.75])}
    text = str(layer(**bells, grad_norms={'w_b': 2.0, 'w_c': None}))
    assert numbers(text, 'b ') == [0.5] * 6
    assert numbers(text, 'c ') == [0.25, 0.375, 0.5, 0.625, 0.75, 0.5]
    assert text.endswith('gradient norms: w_b 2, w_c none')


def test_layer_summary_of_a_relation():
    text = str(layer(mixture=torch.tensor([0.25, 0.75])))
    assert numbers(text, 'mixture share') == [0.25, 0.375, 0.5, 0.625, 0.75, 0.5]
    assert numbers(text, 'share') == [0.25]
    assert numbers(str(layer(mixture=torch.tensor(0.5))), 'mixture share') == [0.5] * 6
    assert 'mixture' not in str(layer())


def test_model_summary_holds_its_layers():
    text = str(ModelSummary((layer(), layer())))
    assert text.count(str(layer())) == 2


def test_summaries_are_frozen():
    with pytest.raises(AttributeError, match='num_edges'):
        graph().num_edges = 1
