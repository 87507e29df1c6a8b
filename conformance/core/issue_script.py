"""A short script for an upstream issue about a known defect, and what it printed."""

from __future__ import annotations

from dataclasses import dataclass

SERVED = "# python -m mlx_vlm.server"
"""How a script begins that asks a server: with the command that starts it."""

MODEL = "a qwen2_vl of two layers with random weights, whose words are t0 to t59"
"""The model that the server had, when the output was stored."""


@dataclass(frozen=True)
class IssueScript:
    """A script of about 20 lines that exits with 1 as long as the defect is there.

    Attributes:
        release: the library and its release: ``mlx-vlm 0.7.10``.
        output: what the script printed in that release.
    """

    script: str
    release: str
    output: str

    @property
    def served(self) -> bool:
        """Whether it asks a running server."""
        return self.script.startswith(SERVED)
