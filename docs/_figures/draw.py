"""Draw pictures of the guide.

    python docs/_figures/draw.py

They go to `docs/_static/drawn/`: commit them.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DRAWN = HERE.parent / '_static' / 'drawn'

if __name__ == '__main__':
    DRAWN.mkdir(exist_ok=True)
    # The same numbers give the same file, byte by byte.
    settings = {'MATPLOTLIBRC': str(HERE / 'matplotlibrc'), 'SOURCE_DATE_EPOCH': '0'}
    paths = [str(HERE.parents[1]), os.environ.get('PYTHONPATH', '')]
    settings['PYTHONPATH'] = os.pathsep.join(filter(None, paths))
    for name in ('make_figures', 'ranks'):
        subprocess.run(
            [sys.executable, str(HERE / f'{name}.py')],
            cwd=DRAWN,
            env=os.environ | settings,
            check=True,
        )
