from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_count
from torch_geometric_gsl.baselines.idgl import IDGL


class IDGLAnchor(IDGL):
    r"""The network of the `"Iterative Deep Graph Learning for Graph Neural Networks:
    Better and Robust Node Embeddings" <https://arxiv.org/abs/2006.13009>`_ paper with
    anchors: some of the nodes pass on the messages of all.

    .. math::
        f(\mathbf{A}^{(t)}) \, \mathbf{H} \; \to \; \mathbf{D}_r^{-1} \mathbf{R}^{(t)}
        \left( \mathbf{D}_c^{-1} {\mathbf{R}^{(t)}}^{\top} \mathbf{H} \right)

    where :math:`\mathbf{R}^{(t)}` holds the similarities of :math:`n` nodes and
    :math:`s` anchors, and :math:`\mathbf{D}_r` and :math:`\mathbf{D}_c` are the sums of
    its rows and columns. The rest is as in
    :class:`~torch_geometric_gsl.baselines.IDGL`, with :math:`\mathbf{R}^{(t)}` in the
    rule that ends the iteration, and the graph of the anchors
    :math:`{\mathbf{R}^{(t)}}^{\top} \mathbf{D}_r^{-1} \mathbf{R}^{(t)}` and their
    features in the loss. Time and memory are linear in :math:`n`, apart from the
    search for the nearest neighbours.

    Anchors are drawn anew in each forward pass in training mode. In evaluation mode
    they are the same for the same number of nodes, by a seed that
    :meth:`reset_parameters` draws and the :obj:`state_dict` holds. In a batch, nodes of
    a graph without anchors receive messages along the graph of neighbours only.

    .. note::
        The weights of the graph of the anchors grow like :math:`n / s`, so that the
        factors of its smoothness and sparsity are zero by default. To give them the
        weight that they have in :class:`~torch_geometric_gsl.baselines.IDGL`, multiply
        :math:`\alpha` by :math:`s / n` and :math:`\gamma` by :math:`(s / n)^2`.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of each hidden sample.
        num_layers (int): The number of layers, at least 2.
        out_channels (int): Size of each output sample.
        num_anchors (int, optional): The number of anchors :math:`s`; all nodes, if
            there are fewer. (default: :obj:`500`)
        smoothness (float, optional): The factor :math:`\alpha` of the loss.
            (default: :obj:`0.0`)
        sparsity (float, optional): The factor :math:`\gamma` of the loss.
            (default: :obj:`0.0`)
        **kwargs (optional): Additional arguments of
            :class:`~torch_geometric_gsl.baselines.IDGL`.

    Shapes:
        - **input and output:** as in :class:`~torch_geometric_gsl.baselines.IDGL`

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> model = IDGLAnchor(16, 32, num_layers=2, out_channels=7, num_anchors=10)
        >>> model(torch.randn(100, 16)).shape
        torch.Size([100, 7])
    """

    shown = ('k', 'num_anchors')
    anchor_seed: Tensor

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        num_anchors: int = 500,
        smoothness: float = 0.0,
        sparsity: float = 0.0,
        **kwargs: Any,
    ) -> None:
        check_count(num_anchors, 'num_anchors')
        sizes = in_channels, hidden_channels, num_layers, out_channels
        super().__init__(*sizes, smoothness=smoothness, sparsity=sparsity, **kwargs)
        self.num_anchors = num_anchors
        self.num_kept = num_anchors
        self.kept_seed: int | None = None
        self.register_buffer('anchor_seed', torch.zeros((), dtype=torch.long))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if hasattr(self, 'anchor_seed'):
            self.anchor_seed.random_(2**31)

    def keep_anchors(self, num_kept: int, seed: int | None = None) -> None:
        r"""Remove anchors in evaluation mode: only some of the model's are kept.

        Args:
            num_kept (int): The number of anchors that are kept.
            seed (int, optional): If given, the kept anchors are chosen at random with
                this seed, the fewer among the more; if :obj:`None`, they are the first
                ones. (default: :obj:`None`)

        Raises:
            TypeError: If :obj:`num_kept` or :obj:`seed` is no integer.
            ValueError: If :obj:`num_kept` is not between 1 and :obj:`num_anchors`, or
                :obj:`seed` is negative.
        """
        check_count(num_kept, 'num_kept')
        if num_kept > self.num_anchors:
            raise ValueError(
                f"'num_kept' must be at most {self.num_anchors} (got {num_kept})"
            )
        if seed is not None:
            check_count(seed, 'seed', minimum=0)
        self.num_kept = num_kept
        self.kept_seed = seed

    def _anchors(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        if self.training:
            order = torch.randperm(x.size(0), generator=generator, device=x.device)
            return order[: self.num_anchors].sort().values
        anchors = _order(x.size(0), int(self.anchor_seed))[: self.num_anchors]
        if self.kept_seed is not None:
            anchors = anchors[_order(anchors.numel(), self.kept_seed)]
        return anchors[: self.num_kept].sort().values.to(x.device)


def _order(size: int, seed: int) -> Tensor:
    """Return one random order for one size and seed."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed))
