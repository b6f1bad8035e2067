from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from torch_geometric_gsl._checks import (
    check_candidate_count,
    check_count,
    check_flag,
    check_generator,
    check_messages,
    check_option,
    check_positive,
)
from torch_geometric_gsl.nn.sampler._inputs import assign_parts
from torch_geometric_gsl.nn.sampler._parts import Part, all_pairs, draw_graph, draw_sum
from torch_geometric_gsl.nn.sampler.distribution import (
    NeighbourDistribution,
    describe_parts,
)
from torch_geometric_gsl.nn.sampler.plan import METHODS, CallOptions, SamplingPlan
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET
from torch_geometric_gsl.typing import Batch, Features, SampledGraph

if TYPE_CHECKING:
    from torch_sparse import SparseTensor


def _check_count_or_none(value: object, name: str, minimum: int = 1) -> None:
    if value is not None:
        check_count(value, name, minimum)


CHECKS: dict[str, Callable[..., None]] = {
    'k': check_count,
    # Beyond, scores over the temperature leave the range of float32.
    'tau': partial(check_positive, low=1e-6, high=1e6),
    'scale': partial(check_positive, low=1e-9, high=1e9),
    'method': partial(check_option, options=METHODS),
    'num_arrivals': _check_count_or_none,
    'num_tail': partial(_check_count_or_none, minimum=0),
    **dict.fromkeys(('max_eval_pairs', 'memory_budget'), check_count),
    **dict.fromkeys(('hard', 'replace', 'loop', 'sample_in_eval'), check_flag),
}


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

    Three methods give this graph:

    * :obj:`"dense"` is the definition. The graph holds all pairs of nodes.
    * :obj:`"race"` finds the first :obj:`num_arrivals` arrivals of each draw, exactly
      and at a cost that does not depend on the number of candidates. It needs a
      similarity with :obj:`bounds`, and :math:`P` proposals a draw, where :math:`P`
      grows like :math:`e^{\lambda (\phi_{\max} - \phi_{\min})}`, and more than
      :math:`4 P` candidates.
    * :obj:`"stream"` finds the same arrivals by looking at all pairs by blocks of rows.

    A method that is asked for serves or raises; only :obj:`"auto"` chooses.

    The :math:`r`-th arrival weighs about :math:`r^{-1/\tau}`. In the last two, a few
    sources of each draw, :obj:`num_tail`, stand for all later arrivals with their mean
    weight, so that no mass is lost. Beyond :math:`\tau = 1` no few arrivals carry the
    weight of a draw: there :obj:`"auto"` takes the definition where it can, and a
    :class:`TruncatedRaceWarning` tells how far the others are from it. In evaluation
    mode the graph holds the :obj:`k` nearest nodes, unless :obj:`"dense"` is asked for.

    Args:
        similarity (Similarity): The similarity of two nodes.
        k (int, optional): The number of draws :math:`K`, hence of neighbours.
            (default: :obj:`5`)
        tau (float, optional): The temperature :math:`\tau`: draws become one-hot
            for :math:`\tau \to 0`. It lies between 1e-6 and 1e6.
            (default: :obj:`0.25`)
        scale (float, optional): The factor :math:`\lambda` of the similarity.
            Similarities are bounded, so that candidates differ by a factor
            :math:`e^{\lambda}` in probability at the most (twice the exponent for
            those in :math:`[-1, 1]`); larger values sharpen. It lies between 1e-9
            and 1e9. (default: :obj:`1.0`)
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
        method (str, optional): :obj:`"dense"`, :obj:`"race"`, :obj:`"stream"`, or
            :obj:`"auto"`: a race where it serves, else the definition for at most
            :math:`2^{22}` pairs, else :obj:`"stream"`; :meth:`plan` tells which and
            why. (default: :obj:`"auto"`)
        num_arrivals (int, optional): The number of arrivals :math:`M` that
            :obj:`"race"` and :obj:`"stream"` keep of each draw; by default
            :math:`16 \tau`, at least 4. (default: :obj:`None`)
        num_tail (int, optional): The number of sources that stand for the later
            arrivals of each draw; :obj:`0` leaves these out. By default as many as
            would add 2 % to the variance of a sum of neighbours, at most 4,096.
            (default: :obj:`None`)
        sample_in_eval (bool, optional): If :obj:`True`, evaluation mode samples as
            training does. (default: :obj:`False`)
        max_eval_pairs (int, optional): The number of pairs of one graph up to which
            :meth:`propagate` is exact in evaluation mode; over given candidates it
            always is. Beyond it estimates sums from a sample of the sources, and says
            so with their error in a :class:`SampledEvaluationWarning`.
            (default: :obj:`2**33`)
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
        num_arrivals: int | None = None,
        num_tail: int | None = None,
        sample_in_eval: bool = False,
        max_eval_pairs: int = 2**33,
        memory_budget: int = MEMORY_BUDGET,
    ) -> None:
        super().__init__()
        if not isinstance(similarity, Similarity):
            raise TypeError(
                f"'similarity' must be a Similarity (got {type(similarity).__name__})"
            )
        self.similarity = similarity
        self.k = k
        self.tau = tau
        self.scale = scale
        self.hard = hard
        self.replace = replace
        self.loop = loop
        self.method = method
        self.num_arrivals = num_arrivals
        self.num_tail = num_tail
        self.sample_in_eval = sample_in_eval
        self.max_eval_pairs = max_eval_pairs
        self.memory_budget = memory_budget
        for name, check in CHECKS.items():
            check(getattr(self, name), name=name)
        self.tau, self.scale = float(tau), float(scale)
        self._draw_hooks: OrderedDict[int, Callable[..., None]] = OrderedDict()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
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
        r"""Sample a graph.

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
        pairs, parts = self._begin(x, edge_index, batch, generator)
        with torch.autocast(pairs.src.device.type, enabled=False):
            graph = draw_graph(parts, generator, pairs.src.device)
        dtype = (x[0] if isinstance(x, tuple | list) else x).dtype
        graph = SampledGraph(graph.edge_index, graph.edge_weight.to(dtype))
        if return_adj_t:
            return graph.to_adj_t((pairs.src.size(0), pairs.dst.size(0)))
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
        r"""Sum messages over the sampled neighbours, :math:`\sum_j A_{ij} h_j`.

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

        Returns:
            torch.Tensor: The sums :math:`[n, m]` of the targets.

        Raises:
            TypeError: If an input has the wrong type or dtype.
            ValueError: If an input has the wrong shape or device, or holds NaN or
                infinite values, or the method that is asked for cannot serve.
        """
        pairs, parts = self._begin(x, edge_index, batch, generator)
        check_messages(h, pairs.src.size(0), pairs.src.device)
        with torch.autocast(h.device.type, enabled=False):
            return draw_sum(parts, h, pairs.dst.size(0), generator)

    def plan(
        self, x: Features, edge_index: Tensor | None = None, batch: Batch | None = None
    ) -> SamplingPlan:
        r"""Return the training-time sampling plan: the method, its numbers, and why.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The node features.
            edge_index (torch.Tensor, optional): Candidate edges.
                (default: :obj:`None`)
            batch (torch.Tensor or tuple, optional): Sorted graph ids of the nodes.
                (default: :obj:`None`)

        Returns:
            SamplingPlan: The plan of the target with the most candidates; where targets
            have candidates of their own, those with few list them all.

        Raises:
            TypeError: If an input has the wrong type or dtype.
            ValueError: If an input is out of range, or the method that is asked for
                cannot serve.
        """
        with torch.no_grad():
            _, parts = self._assign(x, edge_index, batch, is_noisy=True)
        if not parts:
            method = 'dense' if self.method == 'auto' else self.method
            return SamplingPlan(method, 'there is nothing to draw', None, None, 0)
        return max(parts, key=lambda part: part.most).plan

    def distribution(
        self, x: Features, edge_index: Tensor | None = None, batch: Batch | None = None
    ) -> NeighbourDistribution:
        r"""Describe the distribution :math:`\pi_i` that neighbours are drawn from.

        .. math::
            \pi_i = \mathrm{softmax}_j(\lambda \phi_{ij})

        It is exact, for all targets, and takes time :math:`O(n N)`.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The node features.
            edge_index (torch.Tensor, optional): Candidate edges.
                (default: :obj:`None`)
            batch (torch.Tensor or tuple, optional): Sorted graph ids of the nodes.
                (default: :obj:`None`)

        Returns:
            NeighbourDistribution: For each target :math:`i` the number of candidates,
            and the entropy of :math:`\pi_i`.

        Raises:
            TypeError: If an input has the wrong type or dtype.
            ValueError: If an input is out of range.

        Example:
            >>> from torch_geometric_gsl.nn.similarity import UniformSimilarity
            >>> sampler = GumbelKNNSampler(UniformSimilarity(16), k=2, loop=False)
            >>> sampler.distribution(torch.randn(5, 16)).candidates
            tensor([4, 4, 4, 4, 4])
        """
        with torch.no_grad():
            pairs, parts = self._assign(x, edge_index, batch, is_noisy=False)
            return describe_parts(parts, pairs)

    def register_draw_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        r"""Register a function that sees the inputs of each draw before it is made.

        Args:
            hook (Callable): Is called as :obj:`hook(sampler, x, edge_index, batch)` by
                :meth:`forward` and :meth:`propagate`.

        Returns:
            torch.utils.hooks.RemovableHandle: Removes the hook by its
            :meth:`remove`.
        """
        handle = RemovableHandle(self._draw_hooks)
        self._draw_hooks[handle.id] = hook
        return handle

    @property
    def is_noisy(self) -> bool:
        """Whether a call samples: in training mode, or if asked for."""
        return self.training or self.sample_in_eval

    def _begin(
        self,
        x: Features,
        edge_index: Tensor | None,
        batch: Batch | None,
        generator: torch.Generator | None,
    ) -> tuple[PairScores, list[Part]]:
        """Check the inputs, and assign a part to each target."""
        for hook in self._draw_hooks.values():
            hook(self, x, edge_index, batch)
        pairs, parts = self._assign(x, edge_index, batch, self.is_noisy)
        check_generator(generator, pairs.src.device)
        return pairs, parts

    def _assign(
        self,
        x: Features,
        edge_index: Tensor | None,
        batch: Batch | None,
        is_noisy: bool,
    ) -> tuple[PairScores, list[Part]]:
        is_pair = isinstance(x, tuple | list)
        given = CallOptions(
            self.method,
            self.similarity.bounds,
            self.scale,
            self.k,
            self.tau,
            self.hard,
            self.replace,
            self.num_arrivals,
            self.num_tail,
            self.loop or is_pair,
            is_noisy,
            self.memory_budget,
            self.max_eval_pairs,
        )
        pairs = self.similarity.pair_scores(x, self.scale)
        if edge_index is not None or batch is not None:
            with torch.autocast(pairs.src.device.type, enabled=False):
                return pairs, assign_parts(pairs, is_pair, edge_index, batch, given)
        if pairs.dst.size(0) == 0:
            return pairs, []
        check_candidate_count(self.k, pairs.src.size(0) - int(not given.loop))
        return pairs, [all_pairs(pairs, given)]

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.similarity}, k={self.k}, '
            f'tau={self.tau}, scale={self.scale}, method={self.method})'
        )
