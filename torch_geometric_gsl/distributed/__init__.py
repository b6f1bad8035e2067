r"""Train on several processes, each with a part of the rows."""

from torch_geometric_gsl.distributed.checkpoint import load_checkpoint, save_checkpoint
from torch_geometric_gsl.distributed.collective import start
from torch_geometric_gsl.distributed.row_shard import RowShard

__all__ = ['RowShard', 'start', 'save_checkpoint', 'load_checkpoint']
