"""embedded/mlp: what Transformers takes from this repository are the classes of ``layers``."""

from . import layers

__all__ = ["layers"]
