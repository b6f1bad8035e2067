"""Draw the graph that the example of the README learns, into ``docs/_static/``."""

import re
from pathlib import Path

from torch_geometric_gsl.visualization import plot_graph

ROOT = Path(__file__).resolve().parents[2]

readme = (ROOT / 'README.md').read_text(encoding='utf-8')
found = re.search(r'```python\n(.*?)```', readme, re.DOTALL)
assert found is not None
names: dict = {}
exec(found[1], names)
figure = plot_graph(names['model'].graphs(names['x'])[0], y=names['y'])
figure.savefig(ROOT / 'docs' / '_static' / 'readme.png', dpi=80)
