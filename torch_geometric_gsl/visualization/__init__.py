r"""Draw learned graphs and similarities as matplotlib figures.

Nothing touches the global state of :obj:`matplotlib.pyplot`: a figure needs no
display and is written with ``figure.savefig('graph.png')`` or
``figure.savefig('graph.svg')``.
"""

from torch_geometric_gsl.visualization.plots import (
    plot_gaussian_parameters,
    plot_graph,
    plot_similarity_curves,
)

__all__ = ['plot_graph', 'plot_similarity_curves', 'plot_gaussian_parameters']
