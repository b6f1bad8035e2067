from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reproduction.baselines._generated_graph import GeneratedGraphModel
from reproduction.self_supervision.networks import Anchor, Contrast
from torch_geometric_gsl._checks import at_least, check_count
from torch_geometric_gsl.ops.edges import Edges


class SUBLIME(GeneratedGraphModel):
    r"""The model of the `"Towards Unsupervised Deep Graph Structure Learning"
    <https://arxiv.org/abs/2201.06367>`_ paper: a nearest-neighbour graph of
    learned embeddings, which is trained without labels, by contrast with an anchor
    graph that slowly follows it.

    .. math::
        \mathcal{L} &= \mathcal{L}_{\mathrm{class}} + \lambda \,
        \mathcal{L}_{\mathrm{con}} (\mathbf{A}, \mathbf{A}_{\mathrm{anchor}})

        \mathcal{L}_{\mathrm{con}} &= - \frac{1}{2 n} \sum_{i=1}^{n} \left( \log
        \frac{e^{\cos (\mathbf{z}_i, \mathbf{z}'_i) / t}}
        {\sum_j e^{\cos (\mathbf{z}_i, \mathbf{z}'_j) / t}} + \log
        \frac{e^{\cos (\mathbf{z}_i, \mathbf{z}'_i) / t}}
        {\sum_j e^{\cos (\mathbf{z}_j, \mathbf{z}'_i) / t}} \right)

        \mathbf{A}_{\mathrm{anchor}} &\leftarrow \tau \, \mathbf{A}_{\mathrm{anchor}} +
        (1 - \tau) \, \mathbf{A}

    where :math:`\mathbf{A}` is the graph of :class:`SLAPS`, and :math:`\mathbf{z}_i`
    and :math:`\mathbf{z}'_i` embed node :math:`i`, with random features masked, along
    :math:`\mathbf{A}` and along the anchor graph. The anchor graph starts as the
    identity, is updated after each contrast in training mode, and is part of the state;
    it belongs to one set of nodes.

    Labels train the classifier only, a GCN on the learned graph without gradients to
    it. The defaults are the paper's recipe for CiteSeer: 1,000 epochs with Adam, at
    :obj:`1e-2` for :obj:`graph_generator` and :obj:`encoder`, and at :obj:`1e-3` with
    weight decay of :obj:`5e-2` for the :obj:`classifier`.

    .. note::
        The authors train a new classifier every 50 epochs, and keep the one of the best
        validation accuracy. Their code leaves :math:`j = i` out of the sums of the
        contrast. For PubMed it has 128 encoder, 64 embedding and 64 projected channels,
        :math:`k = 15`, :math:`\tau = 1`, :obj:`mask_rate=(0.3, 0.8)` and a contrast
        among 2,000 nodes.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of each hidden sample of the classifier.
        num_layers (int): The number of layers of the classifier.
        out_channels (int): Size of each output sample.
        k (int, optional): The number of neighbours besides the node itself.
            (default: :obj:`20`)
        graph_generator (str, optional): The embedding, :obj:`"mlp_d"` (the paper's
            attentive learner) or :obj:`"mlp"`, as in SLAPS. (default: :obj:`"mlp_d"`)
        encoder_channels (int, optional): Hidden size of the encoder.
            (default: :obj:`512`)
        embedding_channels (int, optional): Size of its output. (default: :obj:`256`)
        projected_channels (int, optional): Size of the contrasted rows.
            (default: :obj:`256`)
        contrastive_weight (float, optional): Weight :math:`\lambda`.
            (default: :obj:`1.0`)
        temperature (float, optional): Temperature :math:`t`. (default: :obj:`0.2`)
        contrast_batch_size (int, optional): The number of nodes of a group, in
            order, that are contrasted with each other; all nodes if :obj:`None`.
            (default: :obj:`None`)
        mask_rate (float or tuple, optional): The fraction of the features that a view
            masks, or those of the anchor and of the learned view.
            (default: :obj:`(0.7, 0.8)`)
        tau (float, optional): The weight :math:`\tau` of the old anchor graph in an
            update. (default: :obj:`0.9999`)
        **kwargs (optional): The :obj:`graph_act`, :obj:`dropout`,
            :obj:`adjacency_dropout` and :obj:`task` of :class:`SLAPS`, with an encoder
            in place of the autoencoder.

    Shapes:
        - **input and output:** as in :class:`SLAPS`

    Raises:
        ValueError: If an argument is out of range, or the contrast sees another number
            of nodes than the anchor graph has.

    Example:
        >>> model = SUBLIME(16, 32, num_layers=2, out_channels=7, k=5)
        >>> x, y, mask = torch.randn(100, 16), torch.arange(100) % 7, torch.arange(50)
        >>> model(x).shape, model.loss(x, y, mask).shape
        (torch.Size([100, 7]), torch.Size([]))
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        k: int = 20,
        graph_generator: str = 'mlp_d',
        encoder_channels: int = 512,
        embedding_channels: int = 256,
        projected_channels: int = 256,
        contrastive_weight: float = 1.0,
        temperature: float = 0.2,
        contrast_batch_size: int | None = None,
        mask_rate: float | tuple[float, float] = (0.7, 0.8),
        tau: float = 0.9999,
        **kwargs: Any,
    ) -> None:
        sizes = in_channels, hidden_channels, num_layers, out_channels
        super().__init__(*sizes, k=k, graph_generator=graph_generator, **kwargs)
        check_count(encoder_channels, 'encoder_channels')
        self.contrastive_weight = at_least(0, contrastive_weight, 'contrastive_weight')
        self.encoder = Contrast(
            in_channels,
            encoder_channels,
            embedding_channels,
            projected_channels,
            Anchor(tau),
            temperature=temperature,
            batch_size=contrast_batch_size,
            mask_rate=mask_rate,
            dropout=self.dropout[0],
            adjacency_dropout=self.adjacency_dropout[0],
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module, and the anchor graph."""
        super().reset_parameters()
        self.encoder.reset_parameters()

    def contrastive_loss(self, x: Tensor, **kwargs: Any) -> Tensor:
        r"""Compute only the unweighted loss :math:`\mathcal{L}_{\mathrm{con}}` of both
        views; the arguments are those of :meth:`forward`. Features are masked in
        evaluation mode, too. In training mode the anchor graph is updated afterwards.
        """
        edges = self._edges(x, **kwargs)
        generator = kwargs.get('generator')
        loss: Tensor = self.encoder(x, edges, generator)
        return loss

    def _classify(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None, **kwargs: bool
    ) -> Tensor:
        # No gradients flow from labels to the graph.
        edges = edges._replace(weight=edges.weight.detach())
        return super()._classify(x, edges, generator, **kwargs)

    def _graph_loss(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None, *labels: Any
    ) -> Tensor:
        loss: Tensor = self.contrastive_weight * self.encoder(x, edges, generator)
        return loss
