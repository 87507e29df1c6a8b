"""Draws the matrices of a result file: ``python ci/matrix_picture.py RESULTS.jsonl PICTURE.svg``.

The README shows that of `conformance run --engine mlx_lm` with the families afm7, deepseek_v3,
falcon_h1, gemma3_text, gpt_oss, jamba, lfm2, llama, mamba and mamba2.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME

from conformance.report.jsonl import read_results
from conformance.report.matrix import matrices
from conformance.report.terminal import legend_text, matrix_text
from conformance.run.registry import build_registry

WIDTH = 130


def main(source: str, target: str) -> None:
    """Write the picture."""
    ladder = sorted(build_registry().scenarios.values(), key=lambda scenario: scenario.rung)
    found = matrices(read_results(Path(source)), [scenario.name for scenario in ladder])
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    for matrix in found:
        console.print(matrix_text(matrix, WIDTH, every_family=True))
        console.print()
    console.print(legend_text(found, WIDTH))
    drawn = console.export_svg(title="conformance run", theme=SVG_EXPORT_THEME)
    # Use a font of the viewer instead: nothing is fetched from elsewhere.
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    Path(target).write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
