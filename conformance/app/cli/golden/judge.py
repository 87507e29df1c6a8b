"""``conformance golden judge``: judge a trace that any program wrote."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from conformance.app.cli.options import EXISTING_FILE, EXISTING_FOLDER
from conformance.app.cli.printing import say
from conformance.core.verdict import encode
from conformance.tools.vectors.judging import judge_trace, result_text


@click.command("judge")
@click.argument("trace", type=EXISTING_FILE, metavar="TRACE.jsonl")
@click.option(
    "--vectors",
    type=EXISTING_FOLDER,
    required=True,
    metavar="DIR",
    help="The folder of `conformance golden export` that the trace was made from.",
)
@click.option("--json", "as_json", is_flag=True, help="Print results as JSON lines.")
@click.pass_context
def command(ctx: click.Context, *, trace: Path, vectors: Path, as_json: bool) -> None:
    """Judge the trace of an engine in any language against exported vectors.

    No model is run. Exit code: 0 if every case is exact or a tie, 1 if not, 2 if the trace or the
    vectors are malformed.
    """
    judgement = judge_trace(trace, vectors)
    results = judgement.results
    rerun = shlex.join(["conformance", "golden", "judge", str(trace), "--vectors", str(vectors)])
    for result in results:
        say(encode(result) if as_json else result_text(result, rerun=rerun))
    if judgement.unplayed:
        say(f"not played: {', '.join(judgement.unplayed)}", err=True)
    wrong = sum(not result.expected for result in results)
    if not as_json:
        cases = f"{len(results)} case{'s' if len(results) > 1 else ''}"
        say(f"FAILED: {wrong} of {cases}" if wrong else f"OK: {cases}")
    ctx.exit(1 if wrong else 0)
