"""Where this project keeps what a later run can use again."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """The project's folder in the user's cache; it need not exist yet."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "mlx-conformance"
