"""Check the package on a device against the CPU, then time it there.

    python benchmark/gpu.py
    python benchmark/gpu.py --device cpu --small --out gpu.json

Needs PyTorch, PyG and a copy of the repository, which need not be installed. Each
method draws its noise on the CPU, so that graph, sums and gradients must be those of
the CPU. A failed check is recorded with its traceback, and the next one starts; the
file is written after each check. The exit status is 1 if one failed.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

# A machine used only to measure has a copy of the repository and no installation.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from record import environment, write_json
from torch import Tensor
from torch.overrides import TorchFunctionMode

import torch_geometric_gsl as gsl
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES
from torch_geometric_gsl.ops.generators import clone_generator

OUT = Path(__file__).resolve().parent / 'results' / 'gpu.json'
METHODS = 'race', 'stream', 'pool', 'dense'
FORMS = 'all', 'pair', 'batch', 'listed'
# The share of targets whose draws may differ: another rounding of a score may accept
# another proposal; and the largest relative errors of sums and of gradients.
DIFFERENT, ERROR, GRADIENT_ERROR = 0.005, 1e-4, 1e-3
ROUNDS = 5

Check = tuple[str, Callable[[], dict[str, Any]]]


class NoiseOfCPU(TorchFunctionMode):
    """Draw on the CPU what is drawn on any device."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is clone_generator:
            twin = torch.Generator()
            twin.set_state(self.generator.get_state())
            return twin
        generator = kwargs.get('generator') or self.generator
        if func in (torch.rand, torch.randint):
            device = kwargs.get('device')
            on_cpu = {'device': 'cpu', 'generator': generator}
            return func(*args, **{**kwargs, **on_cpu}).to(device)
        if func in (Tensor.random_, Tensor.bernoulli_):
            drawn = args[0].cpu()
            func(drawn, *args[1:], **{**kwargs, 'generator': generator})
            return args[0].copy_(drawn)
        return func(*args, **kwargs)


def rows(n: int, channels: int, seed: int) -> Tensor:
    return torch.randn(n, channels, generator=torch.Generator().manual_seed(seed))


def inputs(form: str, n: int) -> dict[str, Any]:
    """Return the arguments of a sampler that say who may join whom."""
    if form == 'listed':
        generator = torch.Generator().manual_seed(3)
        edge_index = torch.randint(n, (2, 30 * n), generator=generator)
        return {'edge_index': edge_index.unique(dim=1)}
    return {'batch': torch.arange(n) // (n // 3)} if form == 'batch' else {}


def run_sampler(
    sampler: gsl.GumbelKNNSampler, form: str, n: int, device: torch.device
) -> list[Tensor]:
    """Return the weights of all pairs, sums and gradients of one seed."""
    x, h = (
        rows(n, m, seed).to(device).requires_grad_() for m, seed in ((9, 0), (4, 1))
    )
    targets = rows(n // 2, 9, 2).to(device) if form == 'pair' else x
    graph_inputs = {key: value.to(device) for key, value in inputs(form, n).items()}
    z = (x, targets) if form == 'pair' else x
    with NoiseOfCPU(1):
        (source, target), weight = sampler(z, **graph_inputs)
    graph = weight.new_zeros(len(targets), n).index_put((target, source), weight)
    with NoiseOfCPU(1):
        out = sampler.propagate(z, h, **graph_inputs)
    loss = (out * rows(len(targets), 4, 5).to(device)).sum()
    leaves = [x, h, *sampler.parameters()]
    grads = torch.autograd.grad(loss, leaves, materialize_grads=True)
    return [value.detach().cpu() for value in (graph, out, *grads)]


def compare(values: list[Tensor], expected: list[Tensor]) -> dict[str, Any]:
    """Compare the graph, sums and gradients of a device with those of the CPU."""
    graph, expected_graph = values[0], expected[0]
    is_different = (graph - expected_graph).abs().amax(dim=1) > ERROR
    share = float(is_different.double().mean())
    if share > DIFFERENT:
        raise AssertionError(f'{share:.1%} of the targets have other neighbours')
    result: dict[str, Any] = {'different_targets': int(is_different.sum())}
    if share == 0:  # Else sums and gradients are those of another graph.
        pairs = zip(values[1:], expected[1:], strict=True)
        errors = [
            float((a - b).norm() / b.norm().clamp(min=1e-12)) if b.any() else 0.0
            for a, b in pairs
        ]
        if errors[0] > ERROR or max(errors) > GRADIENT_ERROR:
            raise AssertionError(f'errors of sum and gradients: {errors}')
        result['errors'] = errors
    return result


def check_method(
    device: torch.device, method: str, name: str, form: str, n: int
) -> dict[str, Any]:
    torch.manual_seed(0)
    similarity = gsl.resolve_similarity(name, 9)
    twin = gsl.GumbelKNNSampler(similarity, k=3, scale=5.0, method=method)
    sampler = copy.deepcopy(twin).to(device)
    values = run_sampler(sampler, form, n, device)
    return compare(values, run_sampler(twin, form, n, torch.device('cpu')))


def check_model(device: torch.device, make: Callable[[], Any]) -> dict[str, Any]:
    """Compare evaluation and a training step of a net with the CPU."""
    torch.manual_seed(0)
    twin = make()
    net, x = copy.deepcopy(twin).to(device), rows(300, 9, 0)
    computed: list[Tensor] = []
    expected: list[Tensor] = []
    for module, features, results in (
        (net, x.to(device), computed),
        (twin, x, expected),
    ):
        with NoiseOfCPU(1):
            out = module.train()(features)
        out.square().mean().backward()
        grads = [p.grad for p in module.parameters() if p.grad is not None]
        values = module.eval()(features), out, *grads
        results.extend(value.detach().cpu() for value in values)
    return compare(computed, expected)


MODELS: dict[str, Callable[[], Any]] = {
    'GSLNet': lambda: gsl.GSLNet(9, 16, 2, 3, dropout=0.0),
    'transition nodes': lambda: gsl.GSLNet(
        9, 16, 2, 3, num_transition_nodes=20, num_nodes=300, dropout=0.0
    ),
}


def time_step(device: torch.device, step: Callable[[], object]) -> dict[str, Any]:
    """Time a step after an uncounted one."""
    seconds = []
    for _ in range(ROUNDS + 1):
        begin = time.perf_counter()
        step()
        if device.type == 'cuda':
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - begin)
    first_run, *repeats = seconds
    return {
        'median': statistics.median(repeats),
        'least': min(repeats),
        'first': first_run,
    }


def time_net(device: torch.device, n: int, **options: Any) -> dict[str, Any]:
    """Time a training step of a net of two layers on random rows."""
    torch.manual_seed(0)
    net = gsl.GSLNet(64, 64, 2, 7, **options).to(device)
    x = rows(n, 64, 0).to(device)
    result = time_step(device, lambda: net(x).square().mean().backward())
    if device.type == 'cuda':
        result['bytes'] = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
    return result


def checks(device: torch.device, *, is_small: bool) -> Iterator[Check]:
    """Yield the checks, and then the times."""
    for method, name, form in product(METHODS, SIMILARITIES, FORMS):
        if method in ('stream', 'pool') and form == 'listed':
            continue  # They are for all sources.
        run = partial(check_method, device, method, name, form, 60 if is_small else 900)
        yield f'{method}, {name}, {form}', run
    for name, make in MODELS.items():
        yield name, partial(check_model, device, make)
    for n in (300,) if is_small else (3_327, 100_000):
        for scale, method in product((1.0, 20.0), ('race', 'dense')):
            if method == 'race' or n < 10_000:
                options = {'scale': scale, 'method': method}
                run = partial(time_net, device, n, **options)
                yield f'seconds: {n} rows, {method}, scale {scale:g}', run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--device', type=torch.device, default=torch.device('cuda'))
    parser.add_argument('--small', action='store_true')
    parser.add_argument('--out', type=Path, default=OUT)
    args = parser.parse_args()
    results: dict[str, Any] = {}
    report = {'environment': environment(), 'device': str(args.device)}
    if args.device.type == 'cuda':
        report['card'] = torch.cuda.get_device_name(args.device)
    failed = 0
    for name, run in checks(args.device, is_small=args.small):
        try:
            results[name] = run()
        except Exception:  # Of any kind: a card may fail in many ways.
            failed += 1
            results[name] = {'failed': traceback.format_exc().splitlines()[-6:]}
        print(name, results[name], flush=True)
        write_json(args.out, report | {'checks': results})
    print(f'{failed} of {len(results)} checks failed')
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
