"""One server that forks the processes of tests, and has imported all that they need.

Python has one such server for all contexts, so that what a single test file asks it to
import would replace what another one did.
"""

import multiprocessing
import os
import sys
from multiprocessing import forkserver

import pytest

CONTEXT = multiprocessing.get_context('forkserver')
# It has never run a backward pass, whose threads no fork survives.
CONTEXT.set_forkserver_preload(
    ['pytest', 'torch.distributed', 'torch_geometric_gsl', 'reproduction.run']
)


def ensure_running():
    """Start the server, unless it runs, where it finds the modules of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('PYTHONPATH', os.pathsep.join(sys.path))
        forkserver.ensure_running()
