r"""SLAPS, its graph generators and its autoencoder."""

from torch_geometric_gsl.baselines.slaps.slaps import SLAPS

__all__ = ['SLAPS']
