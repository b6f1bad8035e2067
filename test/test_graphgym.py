"""What GraphGym makes of a configuration, with its own library."""

import subprocess
import sys
import warnings

import pytest
import torch
from oracles import run_alone
from torch_geometric.data import Batch, Data

from torch_geometric_gsl import GSLNet, LatentGraphConv, TransitionGraphConv

N, IN, OUT = 20, 6, 3


@pytest.fixture(scope='module')
def gym():
    """GraphGym with this package registered."""
    pytest.importorskip('yacs')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # It asks for Lightning.
        import torch_geometric.graphgym as gym

        import torch_geometric_gsl.graphgym  # noqa: F401
    return gym


@pytest.fixture
def cfg(gym):
    """The configuration, with the defaults, for nodes."""
    gym.set_cfg(gym.cfg)
    gym.cfg.accelerator = 'cpu'
    gym.cfg.dataset.task = 'node'
    gym.cfg.gnn.head = 'node'
    gym.cfg.gnn.dim_inner = 8
    gym.cfg.gsl.k = 3
    return gym.cfg


def graph(num_nodes=N, seed=3):
    torch.manual_seed(seed)
    return Data(
        x=torch.randn(num_nodes, IN),
        y=torch.randint(OUT, (num_nodes,)),
        edge_index=torch.randint(num_nodes, (2, 80)),
        train_mask=torch.arange(num_nodes) < num_nodes // 2,
    )


def create(gym):
    torch.manual_seed(5)
    return gym.create_model(dim_in=IN, dim_out=OUT)


def step(gym, model, data):
    """The loss of one step, whose gradient reaches all parameters."""
    data.split = 'train'
    loss, _ = gym.compute_loss(*model(data))
    loss.backward()
    return loss


def test_network(gym, cfg):
    cfg.model.type = 'gslnet'
    cfg.gsl.similarity = 'linear'
    model = create(gym)
    net = model.model.model
    assert isinstance(net, GSLNet)
    assert (net.num_layers, net.hidden_channels, net.convs[0].sampler.k) == (2, 8, 3)
    loss = step(gym, model, data := graph())
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.eval()
    pred, true = model(data)
    assert torch.equal(pred, net(data.x)[data.train_mask])
    assert torch.equal(true, data.y[data.train_mask])
    assert bool(loss.isfinite())


def test_network_on_the_edges(gym, cfg):
    cfg.model.type = 'gslnet'
    cfg.gsl.use_edge_index = True
    model = create(gym).eval()
    pred, _ = model(data := graph())
    assert torch.equal(pred, model.model.model(data.x, data.edge_index))


def test_network_of_transition_nodes(gym, cfg):
    cfg.model.type = 'gslnet'
    cfg.gsl.num_transition_nodes, cfg.gsl.num_nodes = 7, N
    model = create(gym)
    assert isinstance(model.model.model.convs[0], TransitionGraphConv)
    step(gym, model, graph())
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_network_for_graphs(gym, cfg):
    cfg.model.type, cfg.dataset.task = 'gslnet', 'graph'
    cfg.model.graph_pooling = 'mean'
    examples = [graph(size, seed=size) for size in (9, 12)]
    batch = Batch.from_data_list(examples)
    batch.y = torch.tensor([0, 2])
    model = create(gym).eval()
    pred, true = model(batch)
    for row, data in zip(pred, examples, strict=True):
        torch.testing.assert_close(row, model.model.model(data.x)[0])
    loss, _ = gym.compute_loss(pred, true)
    assert bool(loss.isfinite())


@pytest.mark.parametrize(
    ('name', 'kind'),
    [
        ('latentgraphconv', LatentGraphConv),
        ('transitiongraphconv', TransitionGraphConv),
    ],
)
def test_layers(gym, cfg, name, kind):
    cfg.gnn.layer_type, cfg.gnn.layers_post_mp = name, 1
    cfg.gsl.num_transition_nodes, cfg.gsl.num_nodes = 7, N
    model = create(gym)
    layers = [part for part in model.modules() if isinstance(part, kind)]
    assert [layer.in_channels for layer in layers] == [IN, 8]
    assert layers[0].bias is None  # Batch normalisation has one.
    loss = step(gym, model, graph())
    assert bool(loss.isfinite())
    assert all(part.grad is not None for part in layers[0].parameters())


def test_a_batch_of_layers_joins_no_two_graphs(gym, cfg):
    cfg.gnn.layer_type, cfg.gnn.layers_post_mp = 'latentgraphconv', 1
    cfg.gnn.batchnorm = False
    model = create(gym).eval()
    examples = [graph(size, seed=size) for size in (9, 12)]
    pred, _ = model(Batch.from_data_list(examples))
    alone = torch.cat([model(Batch.from_data_list([data]))[0] for data in examples])
    torch.testing.assert_close(pred, alone)


def test_what_cannot_be_made(gym, cfg):
    cfg.model.type, cfg.dataset.task = 'gslnet', 'edge'
    with pytest.raises(ValueError, match=r"'cfg\.dataset\.task' must be one of"):
        create(gym)
    del cfg['gsl']
    with pytest.raises(ValueError, match=r"'cfg' must have the group 'gsl'"):
        create(gym)


def test_a_training_step_of_its_own(gym, cfg):
    cfg.model.type = 'gslnet'
    cfg.optim.max_epoch = 1
    model = create(gym)
    optimizers, _ = model.configure_optimizers()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    data = graph()
    model.training_step(data)['loss'].backward()
    optimizers[0].step()
    pairs = zip(before, model.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in pairs)


def test_it_is_imported_by_itself_alone():
    code = (
        'import sys, torch_geometric_gsl; '
        "print('torch_geometric.graphgym' in sys.modules, 'yacs' in sys.modules)"
    )
    assert run_alone('-c', code)[0] == 'False False\n'


def test_it_says_what_it_needs():
    code = "import sys; sys.modules['yacs'] = None; import torch_geometric_gsl.graphgym"
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.returncode != 0
    assert 'pip install yacs pytorch-lightning' in done.stderr
