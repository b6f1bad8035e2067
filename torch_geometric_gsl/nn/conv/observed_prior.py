from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.utils import coalesce, scatter

from torch_geometric_gsl._checks import check_edge_index, check_one_graph
from torch_geometric_gsl.ops.aggregate import weighted_sum
from torch_geometric_gsl.typing import Batch, Features, SampledGraph


class ObservedPrior(torch.nn.Module):
    r"""Mix an observed graph with a learned one, by a learned share :math:`\alpha`.

    .. math::
        \tilde{\mathbf{A}}_i = \alpha \, \mathbf{D}_i^{-1} \mathbf{A}^{\mathrm{obs}}_i +
        (1 - \alpha) \, \mathbf{A}_i, \qquad \alpha = \sigma(\beta)

    A node without observed edges has its learned ones alone.

    Example:
        >>> prior = ObservedPrior()
        >>> prior.share
        tensor(0.5000, grad_fn=<SigmoidBackward0>)
    """

    def __init__(self) -> None:
        super().__init__()
        self.logit = torch.nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        torch.nn.init.zeros_(self.logit)

    @property
    def share(self) -> Tensor:
        r"""Return the share :math:`\alpha` of the observed graph."""
        return self.logit.sigmoid()

    def forward(
        self,
        out: Tensor,
        h: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        batch: Batch | None = None,
    ) -> Tensor:
        r"""Mix the sums of messages over both graphs.

        Args:
            out (torch.Tensor): The sums :math:`[N, m]` over the learned graph.
            h (torch.Tensor): The messages :math:`[N_{src}, m]`.
            edge_index (torch.Tensor): The observed edges.
            edge_weight (torch.Tensor, optional): Their weights, not negative; ones if
                :obj:`None`. (default: :obj:`None`)
            batch (torch.Tensor, optional): Graph ids, of nodes or of a pair, which no
                edge may join. (default: :obj:`None`)
        """
        edges = edge_index, edge_weight
        observed, kept = self._mixed(*edges, (h, out), h.dtype, batch)
        total = weighted_sum(h, *observed, out.size(0))
        return out * kept.unsqueeze(1) + total

    def graph(
        self,
        graph: SampledGraph,
        x: Features,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        batch: Batch | None = None,
    ) -> SampledGraph:
        r"""Mix both graphs of nodes with features :obj:`x`, or of a pair; weights of
        equal edges add up.
        """
        pair = x if isinstance(x, tuple) else (x, x)
        dtype = graph.edge_weight.dtype
        observed, kept = self._mixed(edge_index, edge_weight, pair, dtype, batch)
        weight = graph.edge_weight * kept[graph.edge_index[1]]
        edges = torch.cat([observed.edge_index, graph.edge_index], dim=1)
        weight = torch.cat([observed.edge_weight, weight])
        return SampledGraph(*coalesce(edges, weight, _most(pair), sort_by_row=False))

    def _mixed(
        self,
        edge_index: Tensor,
        edge_weight: Tensor | None,
        pair: tuple[Tensor, Tensor],
        dtype: torch.dtype,
        batch: Batch | None,
    ) -> tuple[SampledGraph, Tensor]:
        """Return the weighted observed graph, and what each node keeps of its own."""
        check_edge_index(edge_index, *pair)
        if batch is not None:
            check_one_graph(edge_index, batch)
        most, num_targets = _most(pair), pair[1].size(0)
        if edge_weight is None:  # Equal edges are one.
            edges = coalesce(edge_index, num_nodes=most, sort_by_row=False)
            weight = torch.ones(edges.size(1), dtype=dtype, device=edges.device)
        else:
            given = edge_index, edge_weight.to(dtype)
            edges, weight = coalesce(*given, num_nodes=most, sort_by_row=False)
        size = scatter(weight, edges[1], 0, num_targets, reduce='sum')
        share, is_joined = self.share.to(dtype), size > 0
        weight = share * weight / size.where(is_joined, 1)[edges[1]]
        return SampledGraph(edges, weight), 1 - share * is_joined.to(dtype)


def _most(pair: tuple[Tensor, Tensor]) -> int:
    return max(x.size(0) for x in pair)
