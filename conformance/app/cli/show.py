"""``conformance show``: the whole evidence of one case."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from conformance.app.cli.choices import (
    EXISTING_FILE,
    case_options,
    case_settings,
    checkpoint_options,
)
from conformance.app.pytest_plugin.setup import make_setup
from conformance.core.errors import ConformanceError
from conformance.core.verdict import CaseId, CaseResult, encode
from conformance.report import evidence_text
from conformance.report.jsonl import read_results
from conformance.run.selection import Selection, cases
from conformance.tools.checkpoints.given import Given


@click.command("show")
@click.argument("case_id")
@click.option(
    "--from",
    "source",
    type=EXISTING_FILE,
    metavar="FILE",
    help="Read the case from a result file of `conformance run --json` instead of running it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
@checkpoint_options
@case_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    case_id: str,
    source: Path | None,
    as_json: bool,
    family_files: tuple[Path, ...],
    expectations: Path | None,
    no_expectations: bool,
    checkpoint: Given | None,
) -> None:
    """Print the whole evidence of one case, for example mlx_lm/llama/ragged/float32/0.

    Runs just this case: breakpoint() and environment variables reach it. Exit code 1 if its verdict
    is not the expected one.
    """
    case = CaseId.parse(case_id)
    if source is not None:
        result = _recorded(case, source)
    else:
        result = _run(
            case,
            family_files=family_files,
            expectations=expectations,
            no_expectations=no_expectations,
            checkpoint=checkpoint,
        )
    click.echo(encode(result) if as_json else evidence_text(result))
    ctx.exit(0 if result.expected else 1)


def _recorded(case: CaseId, source: Path) -> CaseResult:
    results = {result.case: result for result in read_results(source)}
    if str(case) not in results:
        raise ConformanceError(f"{source} has no case {case}{_hint(str(case), list(results))}")
    return results[str(case)]


def _run(
    case: CaseId,
    *,
    family_files: tuple[Path, ...],
    expectations: Path | None,
    no_expectations: bool,
    checkpoint: Given | None,
) -> CaseResult:
    setup = make_setup(
        case_settings(
            engines=(case.engine,),
            dtypes=(case.dtype,),
            family_files=family_files,
            expectations=expectations,
            no_expectations=no_expectations,
            checkpoint=checkpoint,
        )
    )
    for line in (*setup.told, *setup.sweep()):
        click.echo(line, err=True)
    everything = Selection(
        engines=tuple(setup.registry.engines), dtypes=(case.dtype,), seeds=(case.seed,)
    )
    known = cases(setup.registry, everything)
    if case not in known:
        near = _hint(str(case), [str(other) for other in known])
        raise ConformanceError(f"there is no case {case}{near}")
    return setup.judged(setup.session.run(case))


def _hint(case: str, known: list[str]) -> str:
    near = difflib.get_close_matches(case, known, n=1)
    return f"; did you mean {near[0]}?" if near else " (`conformance list` shows what there is)"
