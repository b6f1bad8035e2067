"""Loss that trains a similarity without a network."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl._checks import check_index, check_type, check_value
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.ops.runtime import full_dtype


def leave_one_out_loss(
    sampler: GumbelKNNSampler,
    x: Tensor,
    y: Tensor,
    *,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Compute the leave-one-out loss of classifying labelled nodes by their
    neighbours' labels, from the `"Neighbourhood Components Analysis"
    <https://papers.nips.cc/paper/2566-neighbourhood-components-analysis>`_ paper.

    .. math::
        \mathcal{L} = - \frac{1}{n} \sum_{i=1}^{n} \log \max \Big( \epsilon,
        \sum_{j \ne i} A_{ij} \, [y_j = y_i] \Big)

    where :math:`\mathbf{A}` has the weights of the sampler among the labelled nodes,
    drawn in training mode and noise-free in evaluation mode, and :math:`\epsilon` is
    the machine precision. It trains a similarity before or together with a network:

    .. code-block:: python

        loss = leave_one_out_loss(conv.sampler, x[train_mask], y[train_mask])

    Args:
        sampler (GumbelKNNSampler): The sampler, with :obj:`loop=False`.
        x (torch.Tensor): The compared rows of the labelled nodes :math:`[n, F]`.
        y (torch.Tensor): Their labels :math:`[n]`, starting at zero.
        generator (torch.Generator, optional): Source of randomness.
            (default: :obj:`None`)

    Returns:
        torch.Tensor: The loss, a scalar.

    Raises:
        ValueError: If the sampler has :obj:`loop=True`, or no two nodes share a label.

    Example:
        >>> from torch_geometric_gsl import GumbelKNNSampler, LinearSimilarity
        >>> options = {'tau': 1.0, 'scale': 1.0, 'train_scale': False}
        >>> sampler = GumbelKNNSampler(LinearSimilarity(2), **options)
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
        >>> leave_one_out_loss(sampler.eval(), x, torch.tensor([0, 0, 1, 1]))
        tensor(0.5978)
    """
    check_type(sampler, GumbelKNNSampler, 'sampler', 'a GumbelKNNSampler')
    if sampler.loop:
        raise ValueError(
            "'sampler' must have loop=False: a node must not see its own label "
            '(got loop=True)'
        )
    check_index(y, 'y', '[num_nodes]', 1, like=x)
    if not 0 < y.numel() == x.size(0):
        raise ValueError(
            f"'y' must have one label per node, at least one (got {y.numel()} for "
            f'{x.size(0)} nodes)'
        )
    lowest = y.amin()
    check_value(lowest >= 0, "'y' must have no negative labels", got=lambda: lowest)
    most = y.bincount().amax()
    check_value(most > 1, "'y' must have two nodes of one label", got=lambda: 'none')
    dtype = full_dtype(x.dtype)
    label = F.one_hot(y).to(dtype)
    share: Tensor = sampler.propagate(x, label, generator=generator)
    right = share.gather(1, y.unsqueeze(1))
    return -right.clamp(min=torch.finfo(dtype).eps).log().mean()
