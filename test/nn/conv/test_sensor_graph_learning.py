"""What the layer of sensors learns: in a recurrent cell, of couplings, of kinds."""

import torch
from oracles import to_matrix
from sampling import normal

from torch_geometric_gsl import SensorGraphConv
from torch_geometric_gsl.datasets import CoupledSensors

N, IN, OUT, K, EMB = 6, 3, 4, 3, 5


class Cell(torch.nn.Module):
    """A gated recurrent unit whose inputs pass along a graph."""

    def __init__(self):
        super().__init__()
        self.gates = SensorGraphConv(IN + OUT, 2 * OUT, N, EMB, k=K)
        self.update = SensorGraphConv(IN + OUT, OUT, N, EMB, k=K)

    def forward(self, x, state, graph):
        both = torch.cat([x, state], dim=-1)
        reset, keep = self.gates(both, graph=graph).sigmoid().chunk(2, dim=-1)
        both = torch.cat([x, reset * state], dim=-1)
        return keep * state + (1 - keep) * self.update(both, graph=graph).tanh()


def test_inside_a_recurrent_cell():
    torch.manual_seed(1)
    cell, x, draws = Cell(), normal(7, 5, N, IN).float(), []
    for conv in (cell.gates, cell.update):
        conv.sampler.register_draw_hook(lambda *args: draws.append(args))
    graph = cell.gates.graph()
    state = torch.zeros(7, N, OUT)
    for time in range(x.size(1)):
        state = cell(x[:, time], state, graph)
    assert (len(draws), state.shape) == (1, (7, N, OUT))
    state.square().sum().backward()
    assert float(cell.gates.embed.weight.grad.abs().min()) > 0
    assert cell.update.embed.weight.grad is None


def test_it_finds_the_couplings_of_a_forecast():
    dataset = CoupledSensors(num_sensors=N, num_sources=1, num_steps=800, seed=2)
    x, y = (part.squeeze(-1).transpose(1, 2) for part in dataset.windows(1))
    torch.manual_seed(0)
    conv = SensorGraphConv(1, 1, N, bias=False)
    optimizer = torch.optim.Adam(conv.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        (conv(x.tanh()) - y).square().mean().backward()
        optimizer.step()
    weight = to_matrix(*conv.eval().graph(), N, N)
    source, target = dataset[0].true_edge_index
    # Most of the weight of each sensor lies on its one source, in the right direction.
    assert float(weight.detach()[target, source].min()) > 0.8
