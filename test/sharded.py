"""Layers and models whose nodes several ranks may share, and all that they return."""

import torch

from torch_geometric_gsl import (
    GSLNet,
    GumbelKNNSampler,
    LatentGraphConv,
    TransitionGraphConv,
)
from torch_geometric_gsl.diagnostics import describe_model

N, IN, OUT, STEPS = 47, 6, 4, 2
MANY = 150  # Nodes enough for bounds of sharp scores.
RACE, FREE = {'method': 'race'}, {'transition': 'free'}
SHARP = {'scale': 20.0, 'similarity': 'linear'}
LAYERS = {
    'dense': (LatentGraphConv, {'method': 'dense'}),
    'race': (LatentGraphConv, {'method': 'race'}),
    'stream': (LatentGraphConv, {'method': 'stream'}),
    'pool': (LatentGraphConv, {'method': 'pool'}),
    'hard': (LatentGraphConv, {'method': 'race', 'hard': True, 'null_score': 0.0}),
    'distinct': (LatentGraphConv, {'replace': False, 'loop': False}),
    'input': (LatentGraphConv, {'z_channels': -1, 'similarity': 'cosine'}),
    'uniform': (LatentGraphConv, {'similarity': 'uniform', 'z_channels': 3}),
    'labels': (LatentGraphConv, {'label_channels': OUT, 'loop': False}),
    'pair': (LatentGraphConv, {}),
    'sharp': (LatentGraphConv, RACE | {'scale': 12.0, 'train_scale': True}),
    'sharp cosine': (LatentGraphConv, RACE | SHARP),
    'transition': (TransitionGraphConv, {'num_nodes': N}),
    'transition, pair': (TransitionGraphConv, {'num_nodes': 25}),
    'transition, race': (TransitionGraphConv, RACE | {'num_nodes': N}),
    'transition, sharp': (TransitionGraphConv, RACE | SHARP | {'num_nodes': MANY}),
    # The bounds that serve them depend on the rows of the other ranks.
    'free, sharp': (
        TransitionGraphConv,
        RACE | FREE | SHARP | {'num_transition_nodes': 600},
    ),
    'free': (TransitionGraphConv, FREE | {'method': 'stream'}),
    'anchors': (TransitionGraphConv, {'transition': 'anchors'}),
}
NETS = {
    'net': {'z_channels': None},
    'net, input': {'z_channels': -1, 'method': 'race'},
    'net, pair': {},
    'net, pair of z': {'z_channels': 3},
    'net, sharp': {'scale': 10.0, 'method': 'race'},
    'net, transition': {'num_nodes': N},
    'net, regression': {'task': 'regression'},
}
KINDS = LAYERS | {name: (GSLNet, options) for name, options in NETS.items()}


def numbers(seed, *size):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=generator, dtype=torch.double)


def num_nodes(name):
    return MANY if 'sharp' in name else N


def make(name):
    """Return the module, the same on each rank."""
    cls, options = KINDS[name]
    if cls is TransitionGraphConv or 'transition' in options or 'num_nodes' in options:
        options = {'num_transition_nodes': 9, **options}
        if name == 'transition, sharp':
            options['num_transition_nodes'] = 130
    torch.manual_seed(4)
    # So wide that dropout leaves no two rows alike, which rounding would tell apart.
    sizes = (IN, 16, 2, OUT) if cls is GSLNet else (IN, OUT)
    module = cls(*sizes, k=3, **options).double()
    if options.get('transition') == 'anchors':
        module.choose_anchors(numbers(8, 20, IN))
    return module


def arguments(name, rows):
    """Return features and other arguments for some of the nodes."""
    n, (_, options) = num_nodes(name), KINDS[name]
    x = numbers(0, n, IN)[rows].clone().requires_grad_()
    kwargs = {}
    if options.get('z_channels') == 3:
        kwargs['z'] = numbers(1, n, 3)[rows].clone().requires_grad_()
    if 'label_channels' in options:
        kwargs['y'] = torch.arange(n)[rows] % (OUT + 1) - 1  # Some are unknown.
    return x, kwargs


def labels(name, rows):
    n = num_nodes(name)
    y = numbers(5, n, OUT) if 'regression' in name else torch.arange(n) % OUT
    mask = torch.arange(n) % 3 == 0
    mask[: n // 3] = False  # None on the first of three ranks.
    return y[rows], mask[rows]


def results(name, rows, shard=None):
    """Return losses, gradients, graphs and evaluations of some of the nodes."""
    model = make(name)
    is_net = isinstance(model, GSLNet)
    own_rows, kwargs = arguments(name, rows)
    x, inputs = own_rows, [own_rows, *(kwargs[key] for key in kwargs if key == 'z')]
    if 'pair' in name:  # Sources that are the same on all ranks.
        x = numbers(8, 25, IN), own_rows
        kwargs |= {'z': (numbers(9, 25, 3), kwargs['z'])} if 'z' in kwargs else {}
    kwargs |= {} if shard is None else {'shard': shard}
    outputs = {}
    torch.manual_seed(6)
    for step in range(STEPS):
        if is_net:
            loss = model.loss(x, *labels(name, rows), **kwargs)
        else:
            loss = (model(x, **kwargs) * numbers(7, num_nodes(name), OUT)[rows]).sum()
        loss.backward()
        if shard is not None and not is_net:
            loss = shard.sum(loss.detach())
        outputs[f'loss {step}'] = loss.detach()
    outputs['next'] = torch.rand(3)
    if shard is not None:
        shard.sum_gradients(model)
    outputs |= {f'gradient {key}': p.grad for key, p in model.named_parameters()}
    for training in (True, False):
        model.train(training)
        with torch.no_grad():
            graph = [] if is_net else [model.graph(x, **kwargs)]
            graphs = model.graphs(x, **kwargs) if is_net else []
            outputs[f'graph {training}'] = [*graph, *graphs]
    outputs['out'] = [*(rows.grad for rows in inputs), model(x, **kwargs).detach()]
    model.train()
    summary = describe_model(model, x, **kwargs)
    outputs['summary'] = [
        (a.candidates, a.entropy, a.b, a.c, a.null, a.share) for a in summary.layers
    ]
    samplers = [m for m in model.modules() if isinstance(m, GumbelKNNSampler)]
    outputs['bounds'] = any(s._row_cache._entries for s in samplers)
    if is_net:
        outputs['predict'] = [model.predict(x, **kwargs)]
        outputs['score'] = model.score(x, *labels(name, rows), **kwargs)
    return outputs
