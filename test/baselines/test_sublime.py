import pytest
import torch
from generated import (
    GENERATORS,
    LAYOUTS,
    OUT,
    N,
    adjacency,
    as_layout,
    build,
    gcn,
    words,
)
from oracles import seeded, to_matrix
from torch.nn import functional as F

from torch_geometric_gsl.baselines import SUBLIME
from torch_geometric_gsl.ops.masking import hide_channels

T = 0.2


def make(**options):
    return build(SUBLIME, **options)


# The anchor.


def test_the_anchor_moves_in_training_only():
    model, x = make(tau=0.9), words()
    expected = torch.eye(N, dtype=torch.float64)
    for step in range(3):
        model.train(step > 0)
        (learned,) = model.graphs(x)
        model.contrastive_loss(x)
        if step > 0:
            expected = 0.9 * expected + 0.1 * to_matrix(*learned, N, N).detach()
        found = model.anchor.graph(N, x)
        torch.testing.assert_close(to_matrix(*found, N, N), expected)
    assert not found.edge_weight.requires_grad
    model(x)
    torch.testing.assert_close(model.anchor.graph(N, x), found)
    model.reset_parameters()
    assert model.anchor.edge_weight.numel() == 0


def test_with_tau_one_the_anchor_remains():
    model = make(tau=1.0).train()
    model.loss(words(), torch.arange(N) % OUT, torch.arange(N))
    assert model.anchor.edge_weight.numel() == 0


def test_the_state_holds_the_anchor():
    model, x = make(tau=0.5).train(), words()
    model.contrastive_loss(x)
    other = make(tau=0.5)
    before = other.contrastive_loss(x, generator=seeded())
    other.load_state_dict(model.state_dict())
    expected = model.eval().contrastive_loss(x, generator=seeded())
    assert torch.equal(other.contrastive_loss(x, generator=seeded()), expected)
    assert not torch.equal(before, expected)
    make(tau=0.5).load_state_dict(make().state_dict())
    model.load_state_dict(make().state_dict())
    assert torch.equal(model.contrastive_loss(x, generator=seeded()), before)


def test_the_anchor_is_that_of_its_nodes():
    model = make().train()
    model.contrastive_loss(words())
    match = r"'x' must hold the 9 nodes of the anchor graph, .* \(got 8 nodes\)"
    with pytest.raises(ValueError, match=match):
        model.contrastive_loss(words(8))
    assert model(words(8)).shape == (8, OUT)


# The contrast, for whole matrices.


def contrast(first, second):
    score = F.normalize(first, dim=1) @ F.normalize(second, dim=1).t() / T
    own = torch.arange(len(score))
    return (F.cross_entropy(score, own) + F.cross_entropy(score.t(), own)) / 2


@LAYOUTS
@GENERATORS
@torch.no_grad()
def test_contrastive_loss_against_matrices(layout, graph_generator):
    model, x = make(graph_generator=graph_generator), words()
    a = adjacency(model, x, 'tanh')
    # The anchor's features are hidden first.
    generator, projected = seeded(3), []
    for matrix, rate in ((torch.eye(N).double(), 0.7), (a, 0.8)):
        hidden = hide_channels(x, rate, generator)
        encoder = model.encoder
        h = gcn([encoder.first, encoder.last], matrix, hidden)
        projected.append(encoder.project_last(encoder.project_first(h).relu()))
    found = model.contrastive_loss(as_layout(x, layout), generator=seeded(3))
    torch.testing.assert_close(found, contrast(*projected))


@GENERATORS
def test_labels_train_the_classifier_alone(graph_generator):
    model, x = make(graph_generator=graph_generator), words()
    model(x).sum().backward()
    for name, value in model.named_parameters():
        assert (value.grad is not None) == name.startswith('classifier.'), name
    grads = []
    for mask in (torch.arange(3), torch.arange(3, 8)):
        model.zero_grad()
        model.loss(x, torch.arange(N) % OUT, mask, generator=seeded()).backward()
        grads.append({name: value.grad for name, value in model.named_parameters()})
    for name, value in grads[0].items():
        is_equal = torch.equal(value, grads[1][name])
        assert is_equal != name.startswith('classifier.'), name
