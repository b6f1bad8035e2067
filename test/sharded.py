"""Layers and models whose nodes several ranks may share, and all that they return."""

import torch

from torch_geometric_gsl import GSLNet, LatentGraphConv, TransitionGraphConv
from torch_geometric_gsl.diagnostics import describe_model

N, IN, OUT, STEPS = 47, 6, 4, 2
MANY = 150  # Nodes enough for bounds of sharp scores.
LAYERS = {
    'dense': (LatentGraphConv, {'method': 'dense'}),
    'race': (LatentGraphConv, {'method': 'race'}),
    'stream': (LatentGraphConv, {'method': 'stream'}),
    'hard': (LatentGraphConv, {'method': 'race', 'hard': True, 'null_score': 0.0}),
    'distinct': (LatentGraphConv, {'replace': False, 'loop': False}),
    'input': (LatentGraphConv, {'compare': 'input', 'similarity': 'cosine'}),
    'embedding': (LatentGraphConv, {'compare': 'embedding', 'embedding_channels': 3}),
    'uniform': (
        LatentGraphConv,
        {'similarity': 'uniform', 'compare': 'embedding', 'embedding_channels': 3},
    ),
    'prior': (LatentGraphConv, {'observed': 'prior', 'add_self_loops': True}),
    'sharp': (
        LatentGraphConv,
        {'method': 'race', 'scale': 12.0, 'train_scale': True},
    ),
    'sharp cosine': (
        LatentGraphConv,
        {'method': 'race', 'scale': 15.0, 'similarity': 'linear'},
    ),
    'transition': (TransitionGraphConv, {'num_nodes': N}),
    'transition, race': (TransitionGraphConv, {'num_nodes': N, 'method': 'race'}),
    'transition, sharp': (
        TransitionGraphConv,
        {'num_nodes': MANY, 'method': 'race', 'scale': 20.0, 'similarity': 'linear'},
    ),
    # The bounds that serve them depend on the rows of the other ranks.
    'free, sharp': (
        TransitionGraphConv,
        {
            'transition': 'free',
            'num_transition_nodes': 600,
            'scale': 20.0,
            'similarity': 'linear',
        },
    ),
    'free': (TransitionGraphConv, {'transition': 'free', 'method': 'stream'}),
    'anchors': (TransitionGraphConv, {'transition': 'anchors'}),
}
NETS = {
    'net': {},
    'net, input': {'compare': 'input', 'method': 'race'},
    'net, embedding': {'compare': 'embedding', 'embedding_channels': 3},
    'net, sharp': {'scale': 10.0, 'method': 'race'},
    'net, prior': {'observed': 'prior'},
    'net, transition': {'num_nodes': N},
    'net, anchors': {'transition': 'anchors'},
    'net, free': {'transition': 'free'},
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
    kind, options = KINDS[name]
    if kind is TransitionGraphConv or 'transition' in options or 'num_nodes' in options:
        options = {'num_transition_nodes': 9, **options}
        if name == 'transition, sharp':
            options['num_transition_nodes'] = 130
    torch.manual_seed(4)
    # So wide that dropout leaves no two rows alike, which rounding would tell apart.
    sizes = (IN, 16, 2, OUT) if kind is GSLNet else (IN, OUT)
    module = kind(*sizes, k=3, **options).double()
    if options.get('transition') == 'anchors':
        module.choose_anchors(numbers(8, 20, IN))
    return module


def arguments(name, rows):
    """Return features and other arguments for some of the nodes."""
    n, (_, options) = num_nodes(name), KINDS[name]
    x = numbers(0, n, IN)[rows].clone().requires_grad_()
    given = {}
    if options.get('compare') == 'embedding':
        given['embedding'] = numbers(1, n, 3)[rows].clone().requires_grad_()
    if options.get('observed') == 'prior':
        source, target = torch.randint(
            n, (2, 3 * n), generator=torch.Generator().manual_seed(3)
        )
        target = target % (n - 5)  # The last nodes have none.
        keep = (target >= rows.start) & (target < rows.stop)
        given['edge_index'] = torch.stack([source[keep], target[keep]])
    return x, given


def labels(name, rows):
    n = num_nodes(name)
    y = numbers(5, n, OUT) if 'regression' in name else torch.arange(n) % OUT
    mask = torch.arange(n) % 3 == 0
    mask[: n // 3] = False  # None on the first of three ranks.
    return y[rows], mask[rows]


def results(name, rows, shard=None):
    """Return losses, gradients, graphs and evaluations of some of the nodes."""
    module = make(name)
    is_net = isinstance(module, GSLNet)
    x, given = arguments(name, rows)
    if shard is not None:
        given['shard'] = shard
    found = {}
    torch.manual_seed(6)
    for step in range(STEPS):
        if is_net:
            loss = module.loss(x, *labels(name, rows), **given)
        else:
            loss = (module(x, **given) * numbers(7, num_nodes(name), OUT)[rows]).sum()
        loss.backward()
        if shard is not None and not is_net:
            loss = shard.sum(loss.detach())
        found[f'loss {step}'] = loss.detach()
    found['next'] = torch.rand(3)
    if shard is not None:
        shard.sum_gradients(module)
    found |= {f'gradient {key}': p.grad for key, p in module.named_parameters()}
    inputs = [x.grad, given['embedding'].grad] if 'embedding' in given else [x.grad]
    for training in (True, False):
        module.train(training)
        with torch.no_grad():
            graphs = module.graphs if is_net else module.graph
            graph = graphs(x, **given)
            found[f'graph {training}'] = graph if is_net else [graph]
    found['out'] = [*inputs, module(x, **given).detach()]
    module.train()
    summary = describe_model(module, x, **given)
    found['summary'] = [
        (a.candidates, a.entropy, a.b, a.c, a.null, a.share) for a in summary.layers
    ]
    samplers = {layer.sampler for layer in getattr(module, 'convs', [module])}
    found['bounds'] = any(s._bounds._entries for s in samplers)
    if is_net:
        found['predict'] = [module.predict(x, **given)]
        found['score'] = module.score(x, *labels(name, rows), **given)
    return found
