from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle
from torch_geometric.nn.inits import reset

from torch_geometric_gsl._checks import (
    Ends,
    check_absent,
    check_count,
    check_flag,
    check_generator,
    check_messages,
    check_number,
    check_option,
    check_positive,
    check_type,
)
from torch_geometric_gsl.nn.sampler.candidates import gather_rows
from torch_geometric_gsl.nn.sampler.distribution import (
    UNIFORM_SHARE,
    NeighbourDistribution,
    describe,
    warn_if_uniform,
)
from torch_geometric_gsl.nn.sampler.evaluation import EvaluationAssignment, exported_sum
from torch_geometric_gsl.nn.sampler.methods import BY_NAME
from torch_geometric_gsl.nn.sampler.options import (
    Budget,
    Settings,
    check_budget,
    paper_options,
)
from torch_geometric_gsl.nn.sampler.plan import SamplingPlan, make_draw
from torch_geometric_gsl.nn.sampler.row_cache import RowCache
from torch_geometric_gsl.nn.sampler.targets import Targets
from torch_geometric_gsl.nn.sampler.training import (
    TrainingAssignment,
    depends_on_all_targets,
    plan_of,
    warn_of_no_choice,
)
from torch_geometric_gsl.nn.shared_module import (
    SharedModule,
    all_modules,
    share_module,
)
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.aggregate import weighted_sum
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import (
    check_not_batched,
    disable_compile,
    is_exporting,
)
from torch_geometric_gsl.typing import Batch, Features, PairGraph, SampledGraph

if TYPE_CHECKING:
    from torch_sparse import SparseTensor

# The smallest and the largest factor of a similarity.
_SCALES = 1e-9, 1e9


def _check_eval_k(value: Any, name: str) -> None:
    if isinstance(value, str) and value != 'all':
        raise ValueError(f"{name!r} must be None, 'all' or an integer (got {value!r})")
    if value is not None and value != 'all':
        check_count(value, name)


# The checks of the options of a sampler, by name.
_CHECKS: dict[str, Callable[..., None]] = {
    # Not only a Similarity: 'torch.compile' wraps it.
    'similarity': partial(check_type, types=torch.nn.Module, expected='a Similarity'),
    'k': check_count,
    # Beyond, scores over the temperature overflow float32.
    'tau': partial(check_positive, low=1e-6, high=1e6),
    'scale': partial(check_positive, low=_SCALES[0], high=_SCALES[1]),
    'method': partial(check_option, options=('auto', *BY_NAME)),
    'eval_k': _check_eval_k,
    **dict.fromkeys(('hard', 'replace', 'loop', 'train_scale'), check_flag),
}

# The options that tell which limits of a budget apply, and the budget.
_OPTIONS_OF_BUDGET = ('budget', 'method', 'replace')

# The numbers of the draws at which a sampler warns of uniform draws, with the largest
# share of effective candidates where the scale is learned: it may start low.
_UNIFORM_LIMITS = {1: 0.98, 200: UNIFORM_SHARE}
# The number of targets whose candidates are described for it.
_NUM_DESCRIBED = 64


class GumbelKNNSampler(torch.nn.Module):
    r"""The differentiable sampler of neighbours from the `"Neural Gaussian
    Similarity Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper (equation 4).

    .. math::
        A_{ij} = \frac{1}{K} \sum_{k=1}^{K} \mathrm{softmax}_j \left(
        \frac{\lambda \phi_{ij} + g_{ij}^{(k)}}{\tau} \right),
        \qquad g_{ij}^{(k)} \sim \mathrm{Gumbel}(0, 1)

    where :math:`i` is the target, :math:`j` the candidate neighbour,
    :math:`\phi_{ij}` their similarity and :math:`\lambda` denotes :obj:`scale`: the
    average of :math:`K` relaxed draws from
    :math:`\pi_i = \mathrm{softmax}_j(\lambda \phi_{ij})`. Gradients flow to the
    parameters of the similarity and the features. Evaluation mode is deterministic:
    weights are proportional to :math:`\exp(\lambda \phi_{ij} / \tau)`, over all
    candidates or the :obj:`eval_k` nearest. :meth:`propagate` sums over the graph that
    :meth:`forward` returns, and equal seeds give equal graphs.

    A null neighbour of score :math:`s_0` is an extra candidate of each target without
    a message (a sink):

    .. math::
        \pi_{i0} = \frac{e^{s_0}}{e^{s_0} + \sum_j e^{\lambda \phi_{ij}}}

    In evaluation mode scores are divided by :math:`\tau`, and its weight is relative to
    all candidates, even if only the nearest are summed.

    Four methods sample the same graph: :obj:`"dense"` by its definition, over all
    pairs of nodes; :obj:`"pool"` by the definition over the sources of a target that
    are not negligible, which suits sharp scores; :obj:`"race"` by the exact first
    arrivals of each draw, for a similarity with :obj:`bounds`, usually without visiting
    all pairs; :obj:`"stream"` by the same arrivals, found among all pairs in blocks. In
    the last two, a few sources per draw represent all later arrivals by their mean
    weight, which preserves the total weight. For :math:`\tau > 1` the first arrivals no
    longer carry most of the weight: a :class:`TruncatedRaceWarning` reports the error.

    Args:
        similarity (Similarity): The similarity of two nodes.
        k (int, optional): The number of draws :math:`K`. Each spreads its weight, so in
            training a target has many more edges: :obj:`hard=True` and
            :meth:`SampledGraph.prune()
            <torch_geometric_gsl.typing.SampledGraph.prune>` leave at most :obj:`k`,
            :obj:`replace=False` exactly :obj:`k`. In evaluation mode :obj:`eval_k`
            limits them. (default: :obj:`5`)
        tau (float, optional): The temperature :math:`\tau`, between 1e-6 and 1e6; draws
            become one-hot for :math:`\tau \to 0`. (default: :obj:`0.5`)
        scale (float, optional): The factor :math:`\lambda` of the similarity, between
            1e-9 and 1e9; larger values sharpen. (default: :obj:`20.0`)
        train_scale (bool, optional): If :obj:`True`, the factor is learned, starting
            at :obj:`scale`; its logarithm is a parameter. (default: :obj:`True`)
        null_score (float, optional): If given, each target has a null neighbour (sink),
            which can absorb weight. Its score :math:`s_0` is a parameter that starts at
            this value; :math:`\lambda` does not apply. (default: :obj:`None`)
        loop (bool, optional): If :obj:`False`, a node is not its own candidate. Pairs
            have no self-loops. (default: :obj:`False`)
        hard (bool, optional): If :obj:`True`, each draw is one-hot in the forward pass
            and relaxed in the backward pass (straight-through). Edges that only carry
            gradient weigh exactly zero: see :meth:`SampledGraph.prune()
            <torch_geometric_gsl.typing.SampledGraph.prune>`. (default: :obj:`False`)
        replace (bool, optional): If :obj:`False`, each target draws :obj:`k` distinct
            neighbours (Gumbel top-k), weighted by the relaxation among them, for layers
            that ignore weights. A null neighbour is one of them. (default: :obj:`True`)
        method (str, optional): :obj:`"dense"`, :obj:`"race"`, :obj:`"stream"` or
            :obj:`"pool"`, which raise an error if not applicable, or :obj:`"auto"`: a
            race if it visits few candidates, else the definition for at most
            :math:`2^{16}` pairs, else the cheapest; see :meth:`plan`.
            (default: :obj:`"auto"`)
        eval_k (int or str, optional): The number of nearest candidates of a target in
            evaluation mode, or :obj:`"all"`; if :obj:`None`, all, or :obj:`k` for
            distinct draws (:obj:`replace=False`). A graph of more than :math:`2^{26}`
            edges is summed, but not listed. (default: :obj:`None`)
        budget (Budget, optional): Limits on arrivals, pairs and bytes of a draw and an
            evaluation. (default: :obj:`Budget()`)

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})` or a pair
          :math:`((|\mathcal{V}_s|, F_{in}), (|\mathcal{V}_t|, F_{in}))`, candidate
          edges :math:`(2, |\mathcal{E}_c|)` *(optional)*, their weights
          :math:`(|\mathcal{E}_c|)` *(optional)*, batch vector
          :math:`(|\mathcal{V}|)` *(optional)*
        - **output:** edges :math:`(2, |\mathcal{E}|)`, weights :math:`(|\mathcal{E}|)`

    Raises:
        ValueError: If the budget has a limit that does not apply to the other options.

    Example:
        >>> from torch_geometric_gsl.nn.similarity import NeuralGaussianSimilarity
        >>> sampler = GumbelKNNSampler(NeuralGaussianSimilarity(16), k=5)
        >>> edge_index, edge_weight = sampler(torch.randn(100, 16))
        >>> total = torch.zeros(100).index_add(0, edge_index[1], edge_weight)
        >>> torch.allclose(total, torch.ones(100))
        True
    """

    similarity: Similarity = SharedModule()  # type: ignore[assignment]
    log_scale: torch.nn.Parameter | None
    null_score: torch.nn.Parameter | None

    def __init__(
        self,
        similarity: Similarity,
        k: int = 5,
        tau: float = 0.5,
        scale: float = 20.0,
        *,
        train_scale: bool = True,
        null_score: float | None = None,
        loop: bool = False,
        hard: bool = False,
        replace: bool = True,
        method: str = 'auto',
        eval_k: int | str | None = None,
        budget: Budget = Budget(),  # noqa: B008
    ) -> None:
        super().__init__()
        check_type(similarity, Similarity, 'similarity', 'a Similarity')
        self.similarity = similarity
        self.k = k  # Checked by `__setattr__`, as are the options below.
        self.tau = tau
        self.scale = scale
        self.train_scale = train_scale
        self.initial_null = null_score
        self.loop = loop
        self.hard = hard
        self.replace = replace
        self.method = method
        self.eval_k = eval_k
        self.budget = budget
        if null_score is not None:
            check_number(null_score, 'null_score')
        is_learned = {'log_scale': train_scale, 'null_score': null_score is not None}
        for name in is_learned:
            parameter = torch.nn.Parameter(torch.empty(()))
            self.register_parameter(name, parameter if is_learned[name] else None)
        self._reset_scores()
        self._row_cache = RowCache()
        self._num_draws = 0
        self._draw_hooks: OrderedDict[int, Callable[..., None]] = OrderedDict()

    @classmethod
    def paper(cls, *args: Any, **kwargs: Any) -> GumbelKNNSampler:
        r"""Return the sampler as printed in the paper, with the constructor's
        arguments: draws with loops at :obj:`tau=0.25` and :obj:`scale=1`, and all
        candidates in evaluation mode.

        Example:
            >>> from torch_geometric_gsl.nn.similarity import GaussianSimilarity
            >>> GumbelKNNSampler.paper(GaussianSimilarity(16)).tau
            0.25
        """
        options = paper_options(cls, args, kwargs, similarity=None, eval_k=None)
        return cls(*args, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == 'budget':
            value = check_budget(value)
        elif name in _CHECKS:
            _CHECKS[name](value, name=name)
        if name in _OPTIONS_OF_BUDGET:
            options = vars(self) | {name: value}
            if options.keys() >= {*_OPTIONS_OF_BUDGET}:  # Else the constructor runs.
                _check_budget_applies(*(options[key] for key in _OPTIONS_OF_BUDGET))
        # Once the scale is a parameter or a constant, neither would have an effect.
        is_fixed = name == 'train_scale' and 'log_scale' in self._parameters
        is_fixed |= name == 'scale' and self._parameters.get('log_scale') is not None
        if is_fixed and value != getattr(self, name):
            raise AttributeError(
                f'{name!r} cannot be changed (got {value}): create a new sampler, or '
                "set the parameter 'log_scale' if there is one"
            )
        value = float(value) if name in ('tau', 'scale') else value
        super().__setattr__(name, value)

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        reset(self._modules.get('similarity'))
        self._reset_scores()

    def _reset_scores(self) -> None:
        self._is_initial = True
        if self.log_scale is not None:
            torch.nn.init.constant_(self.log_scale, math.log(self.scale))
        if self.null_score is not None and self.initial_null is not None:
            torch.nn.init.constant_(self.null_score, self.initial_null)

    def _load_from_state_dict(self, *args: Any) -> None:
        self._is_initial = False
        super()._load_from_state_dict(*args)

    def forward(
        self,
        x: Features,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Batch | None = None,
        *,
        rows: tuple[int, int] | None = None,
        generator: torch.Generator | None = None,
        return_adj_t: bool = False,
    ) -> SampledGraph | SparseTensor:
        r"""Sample a graph.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The node
                features, or a pair :obj:`(x_src, x_dst)`.
            edge_index (torch.Tensor, optional): If given, only these edges are
                candidates. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): The weights :math:`w_{ij} \geq 0` of
                :obj:`edge_index`, a prior: the score becomes
                :math:`\lambda \phi_{ij} + \log w_{ij}`. An edge of weight zero is no
                candidate; weights of duplicate edges add up. (default: :obj:`None`)
            batch (torch.Tensor or tuple, optional): Sorted graph ids of the nodes, a
                pair for a pair: edges never join two graphs. (default: :obj:`None`)
            rows (tuple[int, int], optional): The range of targets, start and stop, with
                the same edges and indices as in a call for all. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness; the global one
                if :obj:`None`. (default: :obj:`None`)
            return_adj_t (bool, optional): If :obj:`True`, returns the transposed
                adjacency, a :obj:`torch_sparse.SparseTensor`. (default: :obj:`False`)

        Returns:
            SampledGraph: :obj:`(edge_index, edge_weight)`, sorted by target, without
            duplicates; the weights of each target, and of the null neighbour, sum to 1.

        Raises:
            ValueError: If :obj:`k` exceeds the candidates of distinct draws, or the
                named method is not applicable.
            ImportError: If :obj:`return_adj_t` is set without torch-sparse.
        """
        if is_exporting():
            raise ValueError(
                "a sampler is not supported by 'torch.export', as the number of edges "
                "depends on values: export a layer, a model or 'sampler.propagate'"
            )
        candidates = edge_index, edge_weight, batch, rows
        pairs, targets = self._assign(x, candidates, generator)
        with torch.autocast(pairs.src.device.type, enabled=False):
            graph = _in_dtype_of(x, targets.graph(generator))
        if self.training:
            self.await_gradient(graph.edge_weight)
        if not return_adj_t:
            return graph
        return graph.to_adj_t((pairs.src.size(0), pairs.dst.size(0)))

    def propagate(
        self,
        x: Features | Ends,
        h: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Batch | None = None,
        *,
        rows: tuple[int, int] | None = None,
        gather: Callable[[Tensor], Tensor] | None = None,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> Any:
        r"""Sum messages over the graph of :meth:`forward`, :math:`\sum_j A_{ij} h_j`.

        The arguments are the messages :math:`h` of the sources :math:`[N, m]` and those
        of :meth:`forward`. With :obj:`return_graph=True` it also returns the graph of
        this sum. Programs of :func:`torch.export.export` sum over all pairs at once.

        Several processes can each sum for a range of targets. Then :obj:`x` and
        :obj:`h` are those of :obj:`rows`, and :obj:`gather` returns the rows of all
        processes, in order, given a tensor with the rows of each, as
        :meth:`RowShard.gather() <torch_geometric_gsl.distributed.RowShard.gather>`.
        The sources of a pair, and their messages, are the same in all processes.

        Returns:
            torch.Tensor: The sums :math:`[n, m]` of the targets.

        Example:
            >>> from torch_geometric_gsl.nn.similarity import CosineSimilarity
            >>> sampler = GumbelKNNSampler(CosineSimilarity(16)).eval()
            >>> x = torch.randn(100, 16)
            >>> def gather(first_rows):  # Here another process holds the last rows.
            ...     return torch.cat([first_rows, x[60:]])
            >>> out = sampler.propagate(x[:60], x[:60], rows=(0, 60), gather=gather)
            >>> torch.allclose(out, sampler.propagate(x, x)[:60], atol=1e-6)
            True
        """
        if gather is not None:
            x, h = gather_rows(x, h, rows, gather, self.depends_on_all_targets)
        if is_exporting():
            unsupported: dict[str, Any] = {'edge_index': edge_index, 'batch': batch}
            unsupported |= {'edge_weight': edge_weight, 'rows': rows}
            unsupported |= {'return_graph': return_graph or None}
            pairs, settings = self._begin(x, in_double=self.num_nearest is not None)
            return exported_sum(h, pairs, settings, self.training, unsupported)
        candidates = edge_index, edge_weight, batch, rows
        pairs, targets = self._assign(x, candidates, generator)
        check_messages(h, pairs.src.size(0), pairs.src.device)
        with torch.autocast(h.device.type, enabled=False):
            if return_graph:
                graph = targets.graph(generator)
                start, stop = rows or (0, pairs.dst.size(0))
                edges = graph.edge_index - graph.edge_index.new_tensor([[0], [start]])
                out = weighted_sum(h, edges, graph.edge_weight, stop - start)
            else:
                out = targets.sum(h, generator)
        if self.training:
            self.await_gradient(graph.edge_weight if return_graph else out)
        return (out, _in_dtype_of(x, graph)) if return_graph else out

    def plan(
        self,
        x: Features,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Batch | None = None,
    ) -> SamplingPlan:
        r"""Plan a call of :meth:`forward` in training mode, for the target with the
        most candidates. Short lists of candidates are sampled by the definition.

        :obj:`x` are the rows that the similarity compares: of a layer that compares
        projections (:obj:`z_channels=None`) they are :obj:`conv.lin(x)`.

        Example:
            >>> from torch_geometric_gsl import GSLNet
            >>> x, model = torch.randn(100, 16), GSLNet(16, 32, 2, 7)
            >>> model.convs[0].sampler.plan(x).method
            'dense'
            >>> conv = GSLNet(16, 32, 2, 7, z_channels=None).convs[0]
            >>> conv.sampler.plan(conv.lin(x)).method
            'dense'
        """
        with torch.no_grad():
            pairs, settings = self._begin(x)
            training = TrainingAssignment(pairs, settings, self._row_cache)
            targets = training.assign(edge_index, edge_weight, batch)
            return plan_of(targets, pairs, self.method)

    def distribution(
        self,
        x: Features,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Batch | None = None,
        *,
        rows: tuple[int, int] | None = None,
    ) -> NeighbourDistribution:
        r"""Describe the sampling distribution :math:`\pi_i` of the inputs of
        :meth:`forward`: exactly, in time :math:`O(n N)`.

        Example:
            >>> from torch_geometric_gsl.nn.similarity import UniformSimilarity
            >>> sampler = GumbelKNNSampler(UniformSimilarity(16), k=2, loop=False)
            >>> sampler.distribution(torch.randn(5, 16)).candidates
            tensor([4, 4, 4, 4, 4])
        """
        with torch.no_grad():
            pairs, settings = self._begin(x)
            evaluation = EvaluationAssignment(pairs, settings, self._row_cache)
            targets = evaluation.assign(edge_index, edge_weight, batch, rows)
            selected = slice(*rows or (None,))
            return describe(pairs, targets).map(lambda value: value[selected])

    def depends_on_all_targets(self, num_targets: int, num_sources: int) -> bool:
        r"""Return whether the draws of a target depend on other targets' rows, as with
        sharp scores, where all targets share the method and the bounds of a race.

        Args:
            num_targets (int): The number of targets.
            num_sources (int): The number of sources.
        """
        if not self.training:
            return False
        settings = self._settings(self.factor, is_pair=True)
        return depends_on_all_targets(make_draw(settings, num_targets, num_sources))

    def register_draw_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        r"""Register a function to call before each draw of :meth:`forward` and
        :meth:`propagate`, as :obj:`hook(sampler, x, edge_index, edge_weight, batch)`.
        """
        handle = RemovableHandle(self._draw_hooks)
        self._draw_hooks[handle.id] = hook
        return handle

    @property
    def factor(self) -> float | Tensor:
        r"""Return the factor :math:`\lambda` of the similarity, fixed or learned."""
        if self.log_scale is None:
            return self.scale
        return self.log_scale.clamp(*map(math.log, _SCALES)).exp()

    @property
    def num_nearest(self) -> int | None:
        r"""Return the number of neighbours in evaluation mode, or None for all."""
        if self.eval_k is None:
            return None if self.replace else self.k
        return None if self.eval_k == 'all' else int(self.eval_k)

    def _assign(
        self, x: Features | Ends, candidates: tuple[Any, ...], generator: Any
    ) -> tuple[PairScores, Targets]:
        """Check the inputs of a call; assign each target to a group, which draws in
        training and does not in evaluation.
        """
        for hook in self._draw_hooks.values():
            features = x.features if isinstance(x, Ends) else x
            hook(self, features, *candidates[:3])
        # Rank the nearest in double precision.
        in_double = not self.training and self.num_nearest is not None
        pairs, settings = self._begin(x, in_double=in_double)
        if generator is not None:
            check_generator(generator, pairs.src.device)
        if not self.training:
            return pairs, EvaluationAssignment(pairs, settings, self._row_cache).assign(
                *candidates
            )
        is_whole = candidates[0] is None and candidates[2] is None
        if is_whole:
            self._num_draws += 1
            if (limit := _UNIFORM_LIMITS.get(self._num_draws)) is not None:
                limit = limit if self.train_scale else UNIFORM_SHARE
                self._warn_if_uniform(Ends.of(x).features, pairs.dst.size(0), limit)
        targets = TrainingAssignment(pairs, settings, self._row_cache).assign(
            *candidates
        )
        if is_whole and torch.is_grad_enabled():
            available = pairs.src.size(0) - int(not settings.loop)
            if max(available, 0) < min(pairs.dst.size(0), 2):
                warn_of_no_choice(available)
        return pairs, targets

    def await_gradient(self, drawn: Tensor) -> None:
        """Note once that a gradient flows through a draw in training mode.

        Until then :func:`is_untrained` holds.
        """
        if self._is_initial and drawn.requires_grad:
            drawn.register_hook(lambda gradient: setattr(self, '_is_initial', False))

    @disable_compile
    def _warn_if_uniform(self, x: Features, num_targets: int, limit: float) -> None:
        """Warn if the sampling distribution of some targets is nearly uniform."""
        if self.similarity.is_constant:
            return  # A control, which shall be uniform.
        spread = self.distribution(x, rows=(0, min(num_targets, _NUM_DESCRIBED)))
        warn_if_uniform({'a sampler in training': spread.share}, limit)

    def _begin(
        self, x: Features | Ends, *, in_double: bool = False
    ) -> tuple[PairScores, Settings]:
        """Check features; return the scores of all pairs on demand, and the options of
        a call.
        """
        if not isinstance(x, Ends):  # A layer has checked its own.
            check_not_batched(self, x, self.parameters())
        null = self.null_score
        similarity = self.similarity
        score = similarity.exact_scores if in_double else similarity.pair_scores
        pairs = score(x, self.factor)
        for parameter in (self.log_scale, null):
            if parameter is not None and parameter.device != pairs.src.device:
                raise ValueError(
                    f"'x' is on {pairs.src.device} but the parameters are on "
                    f'{parameter.device}'
                )
        pairs = pairs._replace(memory=self.budget.memory)
        if null is not None:
            pairs = pairs._replace(null=null.to(pairs.src.dtype))
        return pairs, self._settings(pairs.scale, is_pair=Ends.of(x).is_pair)

    def _settings(self, scale: float | Tensor, *, is_pair: bool) -> Settings:
        """Return the options of a call."""
        if isinstance(scale, Tensor):
            # An exported program is deterministic, and no number depends on values.
            scale = self.scale if is_exporting() else float(scale.detach())
        return Settings(
            method=self.method,
            bounds=self.similarity.bounds,
            scale=scale,
            k=self.k,
            tau=self.tau,
            hard=self.hard,
            replace=self.replace,
            loop=self.loop or is_pair,
            budget=self.budget,
            num_nearest=self.num_nearest,
            is_pair=is_pair,
        )

    def describe_options(self) -> str:
        r"""Return the options as text, without those that equal the defaults. A learned
        scale and null score have their present values.
        """
        scale = self.scale
        null_score = self.initial_null
        if self.log_scale is not None and not self.log_scale.is_meta:
            scale = float(f'{torch.as_tensor(self.factor).item():.4g}')
        if self.null_score is not None and not self.null_score.is_meta:
            null_score = float(f'{self.null_score.item():.4g}')
        text = f'k={self.k}, tau={self.tau}, scale={scale}'
        shown = vars(self) | {'null_score': null_score}
        for name, option in signature(GumbelKNNSampler).parameters.items():
            if option.kind is option.KEYWORD_ONLY and shown[name] != option.default:
                text += f', {name}={shown[name]!r}'
        return text

    def __repr__(self) -> str:
        text = f'{self.similarity}, {self.describe_options()}'
        return f'{self.__class__.__name__}({text})'


def samplers_of(model: torch.nn.Module) -> list[GumbelKNNSampler]:
    """Return the samplers that a model uses."""
    return [
        module
        for module in all_modules(model).values()
        if isinstance(module, GumbelKNNSampler)
    ]


def is_untrained(model: torch.nn.Module) -> bool:
    """Return whether no gradient reached the draws of a model's samplers in training
    mode, and none was loaded.

    A model without samplers learns no graph, and is not untrained.
    """
    samplers = samplers_of(model)
    return bool(samplers) and all(sampler._is_initial for sampler in samplers)


def share_similarities(model: torch.nn.Module) -> None:
    """Register a similarity that several samplers use in the first of them only."""
    lenders: dict[int, GumbelKNNSampler] = {}
    for sampler in samplers_of(model):
        lender = lenders.setdefault(id(sampler.similarity), sampler)
        share_module(sampler, 'similarity', lender)


def _check_budget_applies(budget: Budget, method: str, replace: bool) -> None:
    """Raise if draws that keep all candidates have limits of arrivals and tails."""
    if not replace or (method in BY_NAME and not BY_NAME[method].is_truncated):
        why = f'with method={method!r}' if replace else 'with replace=False'
        check_absent(budget.arrivals, 'arrivals', why)
        check_absent(budget.tail, 'tail', why)


def _in_dtype_of(x: Features | Ends, graph: SampledGraph) -> SampledGraph:
    ends = Ends.of(x)
    is_pair = ends.is_pair and ends.src is not ends.dst
    edge_weight = graph.edge_weight.to(ends.src.dtype)
    return (PairGraph if is_pair else SampledGraph)(graph.edge_index, edge_weight)
