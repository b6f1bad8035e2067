"""Record the command, the machine and the versions of a run."""

from __future__ import annotations

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

HERE = Path(__file__).resolve().parent
# Results are written while their code stays as it is.
CODE = (':/', ':(top,exclude)*/results/*')
# Variables that change how memory is allocated.
ALLOCATOR = re.compile(r'^(MALLOC_|GLIBC_TUNABLES$|THP_|LD_PRELOAD$)')


def environment(**options: Any) -> dict[str, Any]:
    """Return the command, its options, the machine, and all versions."""
    return {
        'command': shlex.join([Path(sys.executable).name, *sys.argv]),
        **options,
        'allocator': {k: v for k, v in os.environ.items() if ALLOCATOR.search(k)},
        'cpu': cpu_name(),
        'python': platform.python_version(),
        'torch': torch.__version__,
        'torch_geometric': torch_geometric.__version__,
        'torch_geometric_gsl': torch_geometric_gsl.__version__,
        'git_commit': COMMIT,
        'git_changes': HAS_CHANGES,
    }


def cpu_name() -> str:
    info = Path('/proc/cpuinfo')
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(':')[2] for line in lines if line.startswith('model name')]
    return names[0].strip() if names else platform.processor()


def git(*words: str) -> str | None:
    """Return the answer of git, or :obj:`None` without git or outside a repository."""
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
