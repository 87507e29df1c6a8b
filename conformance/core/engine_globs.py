"""Which engines a glob means: servers take long, so only a glob that says so means them."""

from __future__ import annotations

from fnmatch import fnmatchcase

_SERVER = "server"


def means(glob: str, name: str) -> bool:
    """Whether the glob means the engine: ``mlx_*`` means no server, ``mlx_*_server`` two."""
    served = name.endswith(f"_{_SERVER}") and _SERVER not in glob
    return glob == name or (fnmatchcase(name, glob) and not served)
