r"""Draw learned graphs and similarities, or explore a graph in the browser.

Plots draw on the axes that they are given, or on those of a new figure, and return
them: ``ax.figure.savefig('graph.png')`` writes it. Nothing touches the global state of
:obj:`matplotlib.pyplot`, and nothing needs a display.
"""

from torch_geometric_gsl.visualization.explore import explore
from torch_geometric_gsl.visualization.graph_plots import plot_adjacency, plot_graph
from torch_geometric_gsl.visualization.similarity_plots import (
    plot_gaussian_parameters,
    plot_similarity_curves,
)

__all__ = [
    'plot_graph',
    'plot_adjacency',
    'plot_similarity_curves',
    'plot_gaussian_parameters',
    'explore',
]
