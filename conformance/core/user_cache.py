"""The folder in the user's cache that keeps this package's data between runs."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """``mlx-conformance`` in the user's cache folder.

    That is ``$XDG_CACHE_HOME``, which counts only as an absolute path (XDG Base Directory
    Specification 0.8), else ``~/.cache``.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "mlx-conformance"
