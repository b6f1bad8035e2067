"""Describe the environment of a run, for the experiments and the benchmarks."""

from __future__ import annotations

import argparse
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
#: Files whose changes count: all files except results.
CODE = (':/', ':(top,exclude)*/results/*')
#: Variables that change the allocation of memory.
ALLOCATOR = re.compile(r'^(MALLOC_|GLIBC_TUNABLES$|THP_|LD_PRELOAD$)')


def positive(text: str) -> int:
    """Read a positive integer from a command line."""
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f'must be a positive integer (got {text!r})')
    return int(text)


def environment(**options: Any) -> dict[str, Any]:
    """Return the command, machine and versions, which are needed to repeat a run."""
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
    model_name = re.search(r'^model name.*: (.+)$', text, re.M)
    return model_name[1].strip() if model_name else platform.processor()


def _git(*words: str) -> str | None:
    """Return the output of git, or :obj:`None` without git or a repository."""
    try:
        done = subprocess.run(
            ['git', *words], cwd=HERE, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


# When the code was loaded: commits and edits while it runs do not count.
COMMIT = _git('rev-parse', 'HEAD')
HAS_CHANGES = bool(_git('status', '--porcelain', '--', *CODE))
