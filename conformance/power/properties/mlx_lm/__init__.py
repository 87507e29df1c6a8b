"""Properties of mlx-lm's functions that need no model.

What batches of a model give is played by the scenarios, what caches hold by ``power/caches``.
"""

from __future__ import annotations

from conformance.core.properties import Property, properties_in
from conformance.core.unavailable import Unavailable


def properties() -> list[Property | Unavailable]:
    """All of them, and which modules are left out."""
    return properties_in(__name__)
