"""Draw the graph that the example of the README learns, into ``docs/_static/``."""

import re
from pathlib import Path

from matplotlib.figure import Figure

from torch_geometric_gsl.visualization import plot_adjacency, plot_graph

ROOT = Path(__file__).resolve().parents[2]

readme = (ROOT / 'README.md').read_text(encoding='utf-8')
found = re.search(r'## A first graph.*?```python\n(.*?)```', readme, re.DOTALL)
assert found is not None
names: dict = {}
exec(found[1], names)
graph = names['model'].graphs(names['x'])[0]
figure = Figure(figsize=(12, 4.8), layout='constrained')
left, right = figure.subplots(1, 2)
plot_adjacency(graph, names['y'], ax=left)
plot_graph(graph, names['y'], ax=right)
figure.savefig(ROOT / 'docs' / '_static' / 'readme.png', dpi=80)
