import pytest
import torch
from torch_geometric.data import Batch, Data

from torch_geometric_gsl.nn.similarity import NeuralGaussianSimilarity
from torch_geometric_gsl.transforms import SampledLatentGraph, SimilarityKNNGraph
from torch_geometric_gsl.transforms._feature_graph import evaluation


@pytest.mark.parametrize('cls', [SimilarityKNNGraph, SampledLatentGraph])
def test_graphs_of_few_nodes_raise_without_clamp(cls):
    transform = cls(5, loop=False, clamp=False)
    text = r"'k' must not exceed the number of candidates{} \(got k=5 for {} cand"
    for n in (1, 5):
        data = Data(x=torch.randn(n, 4))
        with pytest.raises(ValueError, match=text.format('', n - 1)):
            transform(data)
        big = Data(x=torch.randn(6, 4))
        with pytest.raises(ValueError, match=text.format(' of graph 1', n - 1)):
            transform(Batch.from_data_list([big, data]))
    assert transform(Data(x=torch.randn(0, 4))).num_edges == 0
    with pytest.raises(TypeError, match=r"'clamp' must be a bool \(got 'no'\)"):
        cls(clamp='no')


def test_batch_vectors():
    data = Data(x=torch.randn(4, 2), batch=torch.tensor([0, 1, 0, 1]))
    with pytest.raises(ValueError, match=r"'data\.batch' must be sorted"):
        SimilarityKNNGraph(k=1)(data)
    nothing = Data(x=torch.empty(0, 3), batch=torch.empty(0, dtype=torch.long))
    out = SimilarityKNNGraph()(nothing)
    assert out.edge_index.shape == (2, 0)
    assert out.edge_weight.shape == (0,)


def test_evaluation_restores_every_part():
    similarity = NeuralGaussianSimilarity(3, 2)
    similarity.lin.eval()
    with pytest.raises(AssertionError, match='neither'), evaluation(similarity):
        assert similarity.training or torch.is_grad_enabled(), 'neither'
    assert similarity.training
    assert not similarity.lin.training
    assert torch.is_grad_enabled()
