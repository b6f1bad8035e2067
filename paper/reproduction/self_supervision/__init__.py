r"""Losses that train a learned graph without labels."""

from reproduction.self_supervision.functional import consistency_loss

__all__ = ['consistency_loss']
