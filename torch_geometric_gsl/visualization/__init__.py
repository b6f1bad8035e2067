r"""Draw learned graphs, or explore a graph in the browser.

Plots draw on given axes, or on those of a new figure, and return them: save with
``ax.figure.savefig('graph.png')``. They change no global state of
:obj:`matplotlib.pyplot` and need no display.
"""

from torch_geometric_gsl.visualization.explore import explore
from torch_geometric_gsl.visualization.graph_plots import plot_adjacency, plot_graph

__all__ = [
    'plot_graph',
    'plot_adjacency',
    'explore',
]
