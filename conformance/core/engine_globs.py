"""Which engines a glob means: some take long, so only a glob that says so means them."""

from __future__ import annotations

from fnmatch import fnmatchcase

_SLOW = ("server", "tensor_parallel", "pipeline")  # they start processes of their own


def means(glob: str, name: str) -> bool:
    """Whether the glob means the engine: ``mlx_*`` means no server, ``mlx_*_server`` two."""
    unsaid = any(f"_{kind}" in name and kind not in glob for kind in _SLOW)
    return glob == name or (fnmatchcase(name, glob) and not unsaid)
