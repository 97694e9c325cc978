"""Finite networks: the twin of a description, which every formula is tested against."""

from .network import Twin, twin

__all__ = ["Twin", "twin"]
