"""``conformance golden verify``: compare the oracle with another implementation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from conformance.app.cli.consoles import new_console
from conformance.app.cli.golden.options import folder_option
from conformance.app.cli.options import (
    EXISTING_FILE,
    family_files_option,
    globs,
    jobs_option,
    json_lines,
    library_path_option,
    new_file,
)
from conformance.app.cli.parallel import in_processes
from conformance.app.cli.registries import registry_of
from conformance.core.errors import ConformanceError
from conformance.core.family import Family
from conformance.core.library import Library
from conformance.power.transformers_check.check_results import (
    Reading,
    Result,
    State,
    markdown,
    placed,
    totals,
    write_verified,
)
from conformance.power.transformers_check.work import (
    check_installed,
    load_results,
    verify_one,
)
from conformance.report.jsonl import ResultFile, write_lines
from conformance.run.registry import select
from conformance.tools.golden.format import find_folder

_LIBRARY = "mlx_lm"


@click.command("verify")
@click.option("--against", type=click.Choice(["transformers"]), required=True)
@globs("family", "Families to verify; may be repeated. Default: all of mlx_lm.")
@family_files_option
@jobs_option()
@json_lines("Write the results as JSON lines.")
@click.option(
    "--from",
    "earlier",
    type=EXISTING_FILE,
    metavar="FILE",
    help="Read the results of an earlier --json instead of comparing again.",
)
@new_file("--markdown", "markdown_file", "Write the tables between the marks in FILE.")
@click.option("--note", "noted", is_flag=True, help="Record agreement in the goldens.")
@folder_option("With --note: folder of goldens. Default: ./golden, then the project's own.")
@library_path_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    against: str,  # noqa: ARG001 - there is only one so far; a later one must be named
    families: tuple[str, ...],
    family_files: tuple[Path, ...],
    jobs: int | None,
    target: Path | None,
    earlier: Path | None,
    markdown_file: Path | None,
    noted: bool,
    folder: Path | None,
) -> None:
    """Compare the library's implementation of each family with Hugging Face transformers.

    A tiny transformers model is saved as an ordinary checkpoint and loaded by the library. The
    logits at every position of a prompt and of its greedy answer must agree within rounding. Needs
    mlx-conformance[transformers]. Exit code 1 if a disagreement has no known cause, or a known
    cause no longer shows.
    """
    goldens = find_folder(folder) if noted else None
    console = new_console()
    if earlier:
        results = load_results(earlier, families)
    else:
        check_installed()
        results = _compare(_chosen(families, family_files), jobs, console, target)
    console.print(shown(results), soft_wrap=True)
    if markdown_file:
        before = _text(markdown_file)
        write_lines(markdown_file, placed(before, markdown(results)).splitlines())
    if goldens:
        console.print(write_verified(goldens, results), soft_wrap=True)
    ctx.exit(0 if all(result.expected for result in results) else 1)


def _chosen(
    patterns: tuple[str, ...], family_files: tuple[Path, ...]
) -> list[tuple[Library, Family]]:
    registry = registry_of(family_files=family_files)
    names = [name for library, name in registry.families if library == _LIBRARY]
    library = registry.libraries[_LIBRARY]
    chosen = select(names, patterns, what="family")
    return [(library, registry.families[_LIBRARY, name]) for name in sorted(chosen)]


def _compare(
    chosen: list[tuple[Library, Family]], jobs: int | None, console: Console, target: Path | None
) -> list[Result]:
    results: list[Result] = []
    file = ResultFile(target)
    with console.status("comparing") as status:
        for result in in_processes(verify_one, chosen, jobs=jobs, on_crash=_crashed):
            results.append(result)
            file.add(result)
            status.update(f"{len(results)}/{len(chosen)} families, {result.family}")
    file.finish(results)
    return results


def _crashed(pair: tuple[Library, Family]) -> Result:
    library, family = pair
    model_type = str(family.config.get("model_type", ""))
    return Result(library.name, family.name, model_type, State.CRASHED)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConformanceError(f"{path}: cannot read it: {error}") from error


def shown(results: Sequence[Result]) -> str:
    """One line for each compared family, then the totals."""
    lines = [_line(result) for result in results if result.state is not State.ABSENT]
    odd = [result.family for result in results if not result.expected]
    lines.append(f"{len(results)} families: {totals(results)}")
    if odd:
        lines.append(f"not as known: {', '.join(odd)}")
    return "\n".join(lines)


def _line(result: Result) -> str:
    parts = [f"{result.family}: {result.state}"]
    if result.reading:
        parts.append(_numbers(result.reading))
    parts += [f"{cause.wrong}, {cause.at}: {cause.what}" for cause in result.causes]
    if result.proof:
        parts.append(f"with that changed {_numbers(result.proof)}")
    elif result.words:
        parts.append(result.words)
    return "; ".join(parts)


def _numbers(reading: Reading) -> str:
    return f"{reading.difference:.1e} nats, {reading.ratio:.3g} times the noise"
