"""The folder of the user that keeps what can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """Below ``$XDG_CACHE_HOME``, or below ``~/.cache``; it need not be there."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "mlx-conformance"
