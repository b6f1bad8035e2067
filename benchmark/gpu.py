"""Check the package on a device against its definitions, then time it there.

    python benchmark/gpu.py
    python benchmark/gpu.py --small --device cpu --out gpu.json

Needs PyTorch, PyG, Triton, NumPy and a copy of the repository, which need not be
installed. Parts run in order of importance; each is isolated: a failure is recorded
with its traceback, and the next part starts. The file is written before and after each
part. If an error leaves CUDA unusable, the process restarts with the next part. Parts
for which no time is left are skipped. The exit status is 1 if a part has failed.
Formulas of bytes and operations are in `gpu_times.py` and `gpu_tables.py`.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

# A borrowed GPU machine has no installed package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import gpu_checks
import gpu_times
from gpu_frame import Part, Setup
from record import environment, write_json

OUT = Path(__file__).resolve().parent / 'results' / 'gpu.json'
# Seconds after the time limit at which a hanging part ends the process.
GRACE = 60.0


def describe(device: torch.device) -> dict[str, Any]:
    """Describe the card: its name, memory, processors and CUDA version."""
    if device.type != 'cuda':
        return {'name': device.type, 'threads': torch.get_num_threads()}
    card = torch.cuda.get_device_properties(device)
    return {
        'name': card.name,
        'memory_bytes': card.total_memory,
        'processors': card.multi_processor_count,
        'capability': f'{card.major}.{card.minor}',
        'cuda': torch.version.cuda,
        'tf32': torch.backends.cuda.matmul.allow_tf32,
    }


def triton_version() -> str | None:
    try:
        import triton  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        return None
    return str(triton.__version__)


def run_part(part: Part, setup: Setup) -> dict[str, Any]:
    """Run a part and return its results or its error."""
    begin = time.perf_counter()
    if is_cuda := setup.device.type == 'cuda':
        torch.cuda.reset_peak_memory_stats(setup.device)
    try:
        found: dict[str, Any] = {'status': 'passed', **part.run(setup)}
        if is_cuda:  # Errors of pending kernels belong to this part.
            torch.cuda.synchronize(setup.device)
            peak = torch.cuda.max_memory_allocated(setup.device)
            found['peak_memory_bytes'] = peak
    except Exception as error:
        found = {'status': 'failed', 'error': f'{type(error).__name__}: {error}'}
        found['traceback'] = traceback.format_exc()
        print(found['traceback'], file=sys.stderr)
    found['seconds'] = time.perf_counter() - begin
    # JSON has no NaN: it is stored as text.
    plain: dict[str, Any] = json.loads(json.dumps(found), parse_constant=str)
    return plain


def is_lost(device: torch.device) -> bool:
    """Free unused memory and return whether the device no longer responds."""
    gc.collect()
    if device.type != 'cuda':
        return False
    try:
        torch.cuda.empty_cache()
        torch.ones(1, device=device).item()
    except RuntimeError:
        return True
    return False


def run_all(setup: Setup, content: dict[str, Any], args: argparse.Namespace) -> None:
    """Run the parts that have not run yet, as long as there is time."""
    for kind, module in (('checks', gpu_checks), ('times', gpu_times)):
        for part in module.parts(setup):
            if part.name not in content[kind]:
                run_one(part, kind, setup, content, args)


def run_one(
    part: Part,
    kind: str,
    setup: Setup,
    content: dict[str, Any],
    args: argparse.Namespace,
) -> None:
    """Run a part if time is left, and write its results."""
    done = content[kind]
    if time.time() - content['begin'] >= 60 * args.minutes:
        done[part.name] = {'status': 'skipped', 'reason': 'no time'}
    else:  # Written first: if the process dies in this part, the file shows it.
        done[part.name] = {'status': 'running'}
        write_json(args.out, content)
        done[part.name] = run_part(part, setup)
    status = done[part.name]['status']
    print(f'{status:>8}  {kind}: {part.name}', flush=True)
    gpu_times.add_ratios(content['times'], list(gpu_times.parts(setup)))
    write_json(args.out, content)
    if status == 'failed' and is_lost(setup.device):
        argv = [word for word in sys.argv if word != '--resume']
        os.execv(sys.executable, [sys.executable, *argv, '--resume'])


def summary(content: dict[str, Any]) -> str:
    """Return the table of times and the number of parts per status."""
    lines = [f'{"median [ms]":>12} {"ratio":>8} {"of copy":>8}  part']
    for name, found in content['times'].items():
        if 'median' in found:
            ratio, share = found.get('ratio', 1.0), found.get('share_of_copy')
            cell = '' if share is None else f'{share:.1%}'
            lines.append(
                f'{1e3 * found["median"]:12.2f} {ratio:8.2f} {cell:>8}  {name}'
            )
    every = {**content['checks'], **content['times']}
    for status in ('passed', 'failed', 'skipped'):
        names = [name for name, found in every.items() if found['status'] == status]
        says = '' if status == 'passed' else ''.join(f'\n  {name}' for name in names)
        lines.append(f'{len(names)} {status}{says}')
    return '\n'.join(lines)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, has_cuda = parser.add_argument, torch.cuda.is_available()
    add('--device', type=torch.device, default='cuda' if has_cuda else 'cpu')
    add('--minutes', type=float, default=8.0, help='no part starts after this time (8)')
    add('--small', action='store_true', help='small sizes, a few seconds')
    add('--seed', type=int, default=0)
    add('--out', type=Path, default=OUT)
    add('--resume', action='store_true', help='continue the file of the last run')
    args = parser.parse_args(argv)
    if args.device.type == 'cuda' and not has_cuda:
        parser.error("'--device cuda' needs a GPU (got none)")
    return args


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    warnings.simplefilter('ignore')
    setup = Setup(args.device, args.small, args.seed)
    about = {'seed': args.seed, 'minutes': args.minutes, 'small': args.small}
    content = environment(**about) | {'triton': triton_version()}
    content |= {'card': describe(args.device), 'begin': time.time()}
    content |= {'checks': {}, 'times': {}}
    if args.resume:
        content = json.loads(args.out.read_text(encoding='utf-8'))
    left = content['begin'] + 60 * args.minutes - time.time()
    wait = max(0.0, left) + GRACE
    faulthandler.dump_traceback_later(wait, exit=True, file=2)
    try:
        run_all(setup, content, args)
    finally:
        faulthandler.cancel_dump_traceback_later()
    print(f'{summary(content)}\n\nWritten: {args.out}')
    every = [*content['checks'].values(), *content['times'].values()]
    if any(found['status'] == 'failed' for found in every):
        sys.exit(1)


if __name__ == '__main__':
    main()
