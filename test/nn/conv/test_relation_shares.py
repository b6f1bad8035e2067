"""The shares of several relations, and how their similarities begin apart."""

import pytest
import torch
from sampling import normal

from torch_geometric_gsl import (
    CosineSimilarity,
    DirectedSimilarity,
    GaussianSimilarity,
    LinearSimilarity,
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.nn.conv.multiplex_latent_graph_conv import (
    RelationShares,
    begin_apart,
    check_apart,
)


def centre(similarity):
    return float(similarity.response(torch.zeros(1, 3)).params[0].detach())


@pytest.mark.parametrize(
    ('kind', 'expected'),
    [('sigmoid', [1 / 6, 1 / 2, 5 / 6]), ('tanh', [-2 / 3, 0.0, 2 / 3])],
)
def test_bells_with_a_bias_begin_at_even_steps(kind, expected):
    bells = [NeuralGaussianSimilarity(3, bias=True, centre=kind) for _ in range(3)]
    begin_apart(bells)
    assert [centre(bell) for bell in bells] == pytest.approx(expected, abs=1e-6)
    assert all(bell.w_b.tolist() == [[0.0] * 3] for bell in bells)


def test_what_begins_at_random_or_alone_is_left_alone():
    kinds = [NeuralGaussianSimilarity(3), CosineSimilarity(3), LinearSimilarity(3)]
    single = NeuralGaussianSimilarity(3, bias=True, feature_weights=True)
    both = torch.nn.ModuleList([*kinds, single])
    before = {key: value.clone() for key, value in both.state_dict().items()}
    begin_apart(kinds)
    begin_apart([single])
    for key, value in both.state_dict().items():
        assert torch.equal(value, before[key])


def test_weights_of_features_begin_with_noise():
    torch.manual_seed(0)
    pair = [LinearSimilarity(500, feature_weights=True) for _ in range(2)]
    begin_apart(pair)
    for similarity in pair:
        weight = similarity.feature_weight.detach()
        assert abs(float(weight.mean()) - 1) < 5 * 0.1 / 500**0.5
        assert 0.08 < float(weight.std()) < 0.12
    assert not torch.equal(pair[0].feature_weight, pair[1].feature_weight)


def test_relations_that_would_stay_equal():
    text = r"'similarity' must tell relations apart: .*\['LinearSimilarity\(3\)', "
    with pytest.raises(ValueError, match=text):
        check_apart([LinearSimilarity(3), GaussianSimilarity(3), LinearSimilarity(3)])
    check_apart([LinearSimilarity(3)])
    check_apart([GaussianSimilarity(3, b=0.2), GaussianSimilarity(3, b=0.8)])
    check_apart([NeuralGaussianSimilarity(3), NeuralGaussianSimilarity(3)])


def test_shares_by_definition():
    shares = RelationShares(4, 3, 'node').double()
    torch.nn.init.normal_(shares.lin.weight)
    torch.nn.init.normal_(shares.lin.bias)
    x = normal(5, 4)
    power = (x @ shares.lin.weight.t() + shares.lin.bias).exp()
    torch.testing.assert_close(shares(x), power / power.sum(dim=1, keepdim=True))
    shares.reset_parameters()
    torch.testing.assert_close(shares(x), torch.full((5, 3), 1 / 3).double())
    shares = RelationShares(4, 3)
    with torch.no_grad():
        shares.logits.copy_(torch.tensor([0.0, 1.0, 3.0]))
    expected = shares.logits.exp() / shares.logits.exp().sum()
    torch.testing.assert_close(shares(), expected)
    with pytest.raises(ValueError, match=r"'shares' must be one of .* \(got 'edge'\)"):
        RelationShares(4, 3, 'edge')
    with pytest.raises(ValueError, match=r"'in_channels' must be known with shares='n"):
        RelationShares(-1, 3, 'node')


def test_one_module_for_two_relations():
    similarity = LinearSimilarity(4, feature_weights=True)
    directed = [DirectedSimilarity(similarity) for _ in range(2)]
    for same in ([similarity, similarity], directed):
        text = "'similarity' must have a module of its own"
        with pytest.raises(ValueError, match=text):
            check_apart(same)


def test_directed_similarities_begin_apart_beside_others():
    pair = [LinearSimilarity(4, feature_weights=True) for _ in range(2)]
    begin_apart([*map(DirectedSimilarity, pair), CosineSimilarity(8)])
    assert not torch.equal(pair[0].feature_weight, pair[1].feature_weight)
    bells = [NeuralGaussianSimilarity(3, bias=True) for _ in range(3)]
    begin_apart([bells[0], *map(DirectedSimilarity, bells[1:])])
    expected = pytest.approx([1 / 6, 1 / 2, 5 / 6], abs=1e-6)
    assert [centre(bell) for bell in bells] == expected
