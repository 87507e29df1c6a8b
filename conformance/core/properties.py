"""Properties of a library's functions that need no model: what they give, held to a definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Property:
    """What functions of a library must give, for drawn arguments.

    Attributes:
        name: as ``samplers: top-p``.
        module: the file that they are in, as ``mlx_vlm/sample_utils.py``; a glob.
        functions: which of them it is about, as ``APCManager.*``; globs.
        problems: calls them, and gives a sentence for each difference.
    """

    name: str
    module: str
    functions: tuple[str, ...]
    problems: Callable[[], Iterable[str]]

    def is_about(self, module: str, function: str) -> bool:
        """Whether it is about that function."""
        return fnmatchcase(module, self.module) and any(
            fnmatchcase(function, glob) for glob in self.functions
        )

    def problem(self) -> str:
        """The first difference, empty if there is none; an error that is raised is one."""
        try:
            return next(iter(self.problems()), "")
        except Exception as error:  # noqa: BLE001 - whatever a library raises
            return f"{type(error).__name__}: {error}"
