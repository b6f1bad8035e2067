r"""Draw learned graphs and similarities, or explore a graph in the browser.

Nothing touches the global state of :obj:`matplotlib.pyplot`: a figure needs no
display and is written with ``figure.savefig('graph.png')`` or
``figure.savefig('graph.svg')``.
"""

from torch_geometric_gsl.visualization.explore import explore
from torch_geometric_gsl.visualization.plots import (
    plot_gaussian_parameters,
    plot_graph,
    plot_similarity_curves,
)

__all__ = [
    'plot_graph',
    'plot_similarity_curves',
    'plot_gaussian_parameters',
    'explore',
]
