from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_count,
    check_flag,
    check_generator,
    check_messages,
    check_option,
    check_positive,
)
from torch_geometric_gsl.nn.sampler._block_sampler import BlockSampler
from torch_geometric_gsl.nn.sampler._task import Task, make_task
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.candidates import candidate_graph, nearest_candidates
from torch_geometric_gsl.ops.chunking import MEMORY_BUDGET
from torch_geometric_gsl.ops.propagate import weighted_sum
from torch_geometric_gsl.ops.scorer import Law
from torch_geometric_gsl.typing import Batch, Features, SampledGraph

if TYPE_CHECKING:
    from torch_sparse import SparseTensor

METHODS = ('auto', 'dense', 'stream')


class GumbelKNNSampler(torch.nn.Module):
    r"""The differentiable sampler of neighbours from the `"Neural Gaussian
    Similarity Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper (Eq. 4).

    .. math::
        A_{ij} = \frac{1}{K} \sum_{k=1}^{K} \mathrm{softmax}_j \left(
        \frac{\lambda \phi_{ij} + g_{ij}^{(k)}}{\tau} \right),
        \qquad g_{ij}^{(k)} \sim \mathrm{Gumbel}(0, 1)

    where :math:`i` is the target, :math:`j` the candidate neighbour,
    :math:`\phi_{ij}` their similarity and :math:`\lambda` denotes :obj:`scale`: the
    average of :math:`K` relaxed draws from
    :math:`\pi_i = \mathrm{softmax}_j(\lambda \phi_{ij})`. Gradient reaches the
    parameters of the similarity and the features. In evaluation mode nothing is
    random: weights are proportional to :math:`\exp(\lambda \phi_{ij} / \tau)`.

    Two methods give this graph:

    * :obj:`"dense"` is the definition. The graph holds all pairs of nodes.
    * :obj:`"stream"` looks at all pairs by blocks of rows and keeps the
      :obj:`num_arrivals` largest perturbed scores of each draw, exactly those that
      :obj:`"dense"` would rank first; in evaluation mode the :obj:`k` nearest. The
      weights are relaxed among them. The :math:`r`-th arrival weighs about
      :math:`r^{-1/\tau}`, so that more is left out at a higher temperature: keep
      more arrivals there.

    Args:
        similarity (Similarity): The similarity of two nodes.
        k (int, optional): The number of draws :math:`K`, hence of neighbours.
            (default: :obj:`5`)
        tau (float, optional): The temperature :math:`\tau`: draws become one-hot
            for :math:`\tau \to 0`. (default: :obj:`0.25`)
        scale (float, optional): The factor :math:`\lambda` of the similarity.
            Similarities are bounded, so that candidates differ by a factor
            :math:`e^{\lambda}` in probability at the most (twice the exponent for
            those in :math:`[-1, 1]`); larger values sharpen. (default: :obj:`1.0`)
        hard (bool, optional): If :obj:`True`, each draw is one-hot in the forward
            pass and relaxed in the backward pass (straight-through). Edges that
            only carry gradient have a weight of exactly zero;
            :meth:`~torch_geometric_gsl.typing.SampledGraph.prune` removes them.
            (default: :obj:`False`)
        replace (bool, optional): If :obj:`False`, each target draws :obj:`k` distinct
            neighbours (Gumbel top-k), weighted by the relaxation among them. Use it
            with layers that ignore edge weights. (default: :obj:`True`)
        loop (bool, optional): If :obj:`False`, a node is no candidate of its own.
            (default: :obj:`True`)
        method (str, optional): :obj:`"dense"`, :obj:`"stream"`, or :obj:`"auto"`,
            which takes :obj:`"stream"`. (default: :obj:`"auto"`)
        num_arrivals (int, optional): The number of candidates :math:`M` that
            :obj:`"stream"` keeps of each draw. (default: :obj:`16`)
        sample_in_eval (bool, optional): If :obj:`True`, evaluation mode samples as
            training does. (default: :obj:`False`)
        memory_budget (int, optional): Bytes of temporary memory of one block of
            rows. (default: :obj:`2**25`)

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})` or a pair
          :math:`((|\mathcal{V}_s|, F_{in}), (|\mathcal{V}_t|, F_{in}))`, candidate
          edges :math:`(2, |\mathcal{E}_c|)` *(optional)*, batch vector
          :math:`(|\mathcal{V}|)` *(optional)*
        - **output:** edge indices :math:`(2, |\mathcal{E}|)` and edge weights
          :math:`(|\mathcal{E}|)`

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> from torch_geometric_gsl.nn.similarity import NeuralGaussianSimilarity
        >>> sampler = GumbelKNNSampler(NeuralGaussianSimilarity(16), k=5)
        >>> edge_index, edge_weight = sampler(torch.randn(100, 16))
        >>> total = torch.zeros(100).index_add(0, edge_index[1], edge_weight)
        >>> torch.allclose(total, torch.ones(100))
        True
    """

    def __init__(
        self,
        similarity: Similarity,
        k: int = 5,
        tau: float = 0.25,
        scale: float = 1.0,
        *,
        hard: bool = False,
        replace: bool = True,
        loop: bool = True,
        method: str = 'auto',
        num_arrivals: int = 16,
        sample_in_eval: bool = False,
        memory_budget: int = MEMORY_BUDGET,
    ) -> None:
        super().__init__()
        if not isinstance(similarity, Similarity):
            raise TypeError(
                f"'similarity' must be a Similarity (got {type(similarity).__name__})"
            )
        check_count(k, 'k')
        check_positive(tau, 'tau')
        check_positive(scale, 'scale')
        check_option(method, METHODS, 'method')
        check_count(num_arrivals, 'num_arrivals')
        check_count(memory_budget, 'memory_budget')
        flags = {'hard': hard, 'replace': replace, 'loop': loop}
        for name, flag in (flags | {'sample_in_eval': sample_in_eval}).items():
            check_flag(flag, name)
        self.similarity = similarity
        self.k = k
        self.tau = float(tau)
        self.scale = float(scale)
        self.hard = hard
        self.replace = replace
        self.loop = loop
        self.method = method
        self.num_arrivals = num_arrivals
        self.sample_in_eval = sample_in_eval
        self.memory_budget = memory_budget

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        self.similarity.reset_parameters()

    def forward(
        self,
        x: Features,
        edge_index: Tensor | None = None,
        batch: Batch | None = None,
        *,
        generator: torch.Generator | None = None,
        return_adj_t: bool = False,
    ) -> SampledGraph | SparseTensor:
        r"""Samples a graph.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The node
                features, or a pair :obj:`(x_src, x_dst)`.
            edge_index (torch.Tensor, optional): If given, only these edges are
                candidates. (default: :obj:`None`)
            batch (torch.Tensor or tuple, optional): Sorted graph ids of the nodes
                (a pair for a pair of features): edges never join two graphs.
                (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness; the global
                generator if :obj:`None`. (default: :obj:`None`)
            return_adj_t (bool, optional): If :obj:`True`, returns the transposed
                adjacency as a :obj:`torch_sparse.SparseTensor` instead.
                (default: :obj:`False`)

        Returns:
            SampledGraph: :obj:`(edge_index, edge_weight)`, sorted by target, without
            duplicates; the weights of each target sum to 1.

        Raises:
            TypeError: If an input has the wrong type or dtype.
            ValueError: If an input has the wrong shape or device, or holds NaN or
                infinite values, if :obj:`k` exceeds the candidates, if
                :obj:`batch` is not sorted or :obj:`edge_index` is out of range.
            ImportError: If :obj:`return_adj_t` is set without torch-sparse.
        """
        task = self._task(x, edge_index, batch, generator)
        graph = self._graph(task, generator, everything=self._is_dense)
        graph = SampledGraph(graph.edge_index, graph.edge_weight.to(task.dtype))
        if return_adj_t:
            return graph.to_adj_t((task.num_sources, task.num_targets))
        return graph

    def propagate(
        self,
        x: Features,
        h: Tensor,
        edge_index: Tensor | None = None,
        batch: Batch | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Sums messages over the sampled neighbours, :math:`\sum_j A_{ij} h_j`.

        In training mode this is a weighted sum over the graph that
        :meth:`forward` samples. In evaluation mode it sums *all* candidates with
        their noise-free weights, by blocks of rows.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The node
                features, or a pair :obj:`(x_src, x_dst)`.
            h (torch.Tensor): The messages of the sources :math:`[N, m]`.
            edge_index (torch.Tensor, optional): If given, only these edges are
                candidates. (default: :obj:`None`)
            batch (torch.Tensor or tuple, optional): Sorted graph ids of the nodes.
                (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)
        """
        task = self._task(x, edge_index, batch, generator)
        check_messages(h, task.num_sources, task.device)
        if task.candidates is None and (self._is_dense or not self.is_noisy):
            return self._sum_blocks(task, h, generator)
        graph = self._graph(
            task, generator, everything=self._is_dense or not self.is_noisy
        )
        return weighted_sum(h, *graph, num_targets=task.num_targets)

    @property
    def is_noisy(self) -> bool:
        """Whether a call samples: in training mode, or if asked for."""
        return self.training or self.sample_in_eval

    @property
    def _is_dense(self) -> bool:
        # Distinct neighbours are k edges per target: one path serves both methods.
        return self.method == 'dense' and self.replace

    @property
    def _law(self) -> Law:
        return Law(self.k, self.tau, self.hard, self.replace, self.num_arrivals)

    def _task(
        self,
        x: Features,
        edge_index: Tensor | None,
        batch: Batch | None,
        generator: torch.Generator | None,
    ) -> Task:
        task = make_task(
            self.similarity,
            x,
            edge_index,
            batch,
            law=self._law,
            scale=self.scale,
            loop=self.loop,
            # A listed pair takes about eight numbers of eight bytes a draw.
            max_pairs=self.memory_budget // (64 * self.k),
        )
        check_generator(generator, task.device)
        return task

    def _graph(
        self, task: Task, generator: torch.Generator | None, everything: bool
    ) -> SampledGraph:
        if task.candidates is not None and task.score is not None:
            args = (task.score, task.candidates, task.num_targets)
            if self.is_noisy:
                return candidate_graph(
                    *args, self._law, everything=everything, generator=generator
                )
            return nearest_candidates(*args, None if everything else self.k, self.tau)
        sampler = self._block_sampler(generator)
        edges = [torch.empty(2, 0, dtype=torch.long, device=task.device)]
        weights = [torch.empty(0, device=task.device)]
        for block in task.blocks:
            edge_index, weight = sampler.graph(block.scorer)
            first = [[block.first_source], [block.first_target]]
            edges.append(edge_index + edge_index.new_tensor(first))
            weights.append(weight)
        return SampledGraph(torch.cat(edges, dim=1), torch.cat(weights))

    def _sum_blocks(
        self, task: Task, h: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        sampler = self._block_sampler(generator)
        sums, rows = [h.new_empty(0, h.size(1))], [slice(0, 0)]
        for scorer, source, target in task.blocks:
            sums.append(sampler.sum(scorer, h[source : source + scorer.size[1]]))
            rows.append(slice(target, target + scorer.size[0]))
        every = torch.arange(task.num_targets, device=h.device)
        index = torch.cat([every[part] for part in rows])
        out = h.new_zeros(task.num_targets, h.size(1))  # Some have no candidates.
        return out.index_copy(0, index, torch.cat(sums))

    def _block_sampler(self, generator: torch.Generator | None) -> BlockSampler:
        return BlockSampler(
            self._law, self._is_dense, self.is_noisy, self.memory_budget, generator
        )

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.similarity}, k={self.k}, '
            f'tau={self.tau}, scale={self.scale}, method={self.method})'
        )
