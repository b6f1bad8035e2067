"""Describe the machine, and limit the memory that runs take of it."""

from __future__ import annotations

import math
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import torch_geometric

import torch_geometric_gsl

#: Where Linux tells how many bytes the processes of a container may use.
CONTAINER_LIMITS = (
    Path('/sys/fs/cgroup/memory.max'),
    Path('/sys/fs/cgroup/memory/memory.limit_in_bytes'),
)
HERE = Path(__file__).resolve().parent
#: Results are written while their code stays as it is.
CODE = (':/', ':(top,exclude)*/results/*')
#: Variables that change how memory is allocated.
ALLOCATOR = re.compile(r'^(MALLOC_|GLIBC_TUNABLES$|THP_|LD_PRELOAD$)')


def environment(**options: Any) -> dict[str, Any]:
    """Return what a reader needs to repeat a run: command, machine, versions."""
    return {
        'command': shlex.join([Path(sys.executable).name, *sys.argv]),
        **options,
        'allocator': {k: v for k, v in os.environ.items() if ALLOCATOR.search(k)},
        'cpu': _cpu_name(),
        'python': platform.python_version(),
        'torch': torch.__version__,
        'torch_geometric': torch_geometric.__version__,
        'torch_geometric_gsl': torch_geometric_gsl.__version__,
        'git_commit': COMMIT,
        'git_changes': HAS_CHANGES,
    }


def _cpu_name() -> str:
    info = Path('/proc/cpuinfo')
    text = info.read_text() if info.exists() else ''
    found = re.search(r'^model name.*: (.+)$', text, re.M)
    return found[1].strip() if found else platform.processor()


def git(*words: str) -> str | None:
    """Return the answer of git, or :obj:`None` without git or a repository."""
    try:
        done = subprocess.run(
            ['git', *words], cwd=HERE, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


# As the code was loaded, whatever is committed or edited while it runs.
COMMIT = git('rev-parse', 'HEAD')
HAS_CHANGES = bool(git('status', '--porcelain', '--', *CODE))


def memory_of(device: str) -> float:
    """Return the gigabytes that runs may use."""
    if torch.device(device).type == 'cuda':
        return float(torch.cuda.get_device_properties(device).total_memory / 1e9)
    total = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    for path in CONTAINER_LIMITS:
        if path.is_file() and (text := path.read_text().strip()).isdigit():
            total = min(total, int(text))
    return 0.9 * total / 1e9


def limit_memory(gigabytes: float) -> None:
    """Make allocations beyond a limit fail, instead of the system killing us.

    An infinite one restores the state of before.
    """
    if not sys.platform.startswith('linux'):
        return
    import resource

    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    size = most if math.isinf(gigabytes) else int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (size, most))
