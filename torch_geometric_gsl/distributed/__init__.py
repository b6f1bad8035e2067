r"""Train on several processes, each with a part of the rows."""

from torch_geometric_gsl.distributed.checkpoint import load_checkpoint, save_checkpoint
from torch_geometric_gsl.distributed.collective import start
from torch_geometric_gsl.distributed.row_shard import RowShard
from torch_geometric_gsl.distributed.sharded_model import ShardedModel

__all__ = ['RowShard', 'ShardedModel', 'start', 'save_checkpoint', 'load_checkpoint']
