"""Properties of mlx-lm's functions that need no model.

Scenarios test batches of a model, and ``power/caches`` tests the contents of caches.
"""

from __future__ import annotations

from conformance.core.properties import Property, properties_in
from conformance.core.unavailable import Unavailable


def properties() -> list[Property | Unavailable]:
    """All properties, and the modules that are unavailable."""
    return properties_in(__name__)
