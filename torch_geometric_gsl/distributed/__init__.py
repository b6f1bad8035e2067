r"""Train on several processes, each of which owns a part of the rows."""

from torch_geometric_gsl.distributed.row_shard import RowShard

__all__ = ['RowShard']
