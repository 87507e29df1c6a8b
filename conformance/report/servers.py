"""What each server does: a table from results, so that a user can choose between servers."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from conformance.core.inventory import Inventory
from conformance.core.verdict import CaseResult, Verdict, most_severe
from conformance.report.markdown import between, code, one_line, table
from conformance.report.outcome import listed


@dataclass(frozen=True)
class Behaviour:
    """A row of the table of servers.

    Attributes:
        text: what a correct server does.
        scenario: the scenario whose ``schedules`` show it; if these are empty: all of them.
    """

    text: str
    scenario: str
    schedules: tuple[str, ...] = ()


BEHAVIOURS: tuple[Behaviour, ...] = (
    Behaviour("one request after the other, streamed or in one piece", "served_alone", ("alone",)),
    Behaviour("top_logprobs, stream_options, logprobs of a text", "served_alone", ("fields",)),
    Behaviour("the server's own model is listed", "served_alone", ("listed",)),
    Behaviour("/v1/messages", "served_endpoints", ("messages",)),
    Behaviour("/v1/responses", "served_endpoints", ("responses",)),
    Behaviour("all endpoints at once", "served_endpoints", ("mixed",)),
    Behaviour("stop sequences of /v1/messages", "served_endpoints", ("stop_sequences",)),
    Behaviour("several at once, of equal length", "served_together", ("equal_length",)),
    Behaviour("several at once, of other lengths", "served_together", ("ragged",)),
    Behaviour("the same request several times at once", "served_together", ("identical",)),
    Behaviour("streams beside answers in one piece", "served_together", ("some_whole",)),
    Behaviour("a client of HTTP/1.1 that reads slowly", "served_together", ("by_raw",)),
    Behaviour("the client of Anthropic", "served_together", ("by_anthropic",)),
    Behaviour("the client of LangChain", "served_together", ("by_langchain*",)),
    Behaviour("a request that joins a long answer", "served_joins"),
    Behaviour("short answers beside long ones, ten at once", "served_ends"),
    Behaviour("more requests than slots", "served_slots"),
    Behaviour("no more rows, prompts and tokens at once than allowed", "served_options", ("rows",)),
    Behaviour("no more prompts kept than allowed", "served_options", ("kept_number",)),
    Behaviour("no more bytes of prompts kept than allowed", "served_options", ("kept_bytes*",)),
    Behaviour("a draft model, several clients", "served_options", ("draft_model",)),
    Behaviour("an adapter from the start, several clients", "served_options", ("adapter_path*",)),
    Behaviour("stop strings", "served_stops"),
    Behaviour("seeds beside plain requests", "served_samplers"),
    Behaviour("each request's own options, without seeds", "served_traffic", ("options",)),
    Behaviour("several stop strings and end tokens", "served_traffic", ("ends",)),
    Behaviour("top_logprobs of streams", "served_traffic", ("logprobs",)),
    Behaviour("64 equal requests draw by their probabilities", "served_draws"),
    Behaviour("characters of several tokens, of bytes", "served_text", ("byte_level",)),
    Behaviour("the same as in SentencePiece", "served_text", ("byte_fallback",)),
    Behaviour("the same by the tokenizer itself", "served_text", ("library",)),
    Behaviour("stop strings within words and characters", "served_text", ("stops",)),
    Behaviour("end tokens in mid-character", "served_text", ("ends",)),
    Behaviour("images beside text", "served_media"),
    Behaviour("quantized keys and values", "served_quantized"),
    Behaviour("prompts that begin alike, with the prefix cache", "served_prefixes"),
    Behaviour("one system message for many", "served_systems", ("for_many",)),
    Behaviour("a changed system message", "served_systems", ("changed",)),
    Behaviour("more system messages than are kept", "served_systems", ("few_kept",)),
    Behaviour("images in the prefix cache", "served_image_prefixes"),
    Behaviour("JSON of a schema, then plain text", "served_schemas", ("in_turn",)),
    Behaviour("JSON of a schema beside plain text", "served_schemas", ("in_one_batch",)),
    Behaviour("another model on request, and back", "served_models", ("in_turn",)),
    Behaviour("another model while one answers", "served_models", ("while_one_answers",)),
    Behaviour("a model of other layers, and back", "served_models", ("other_architecture",)),
    Behaviour("no model kept that another replaced", "served_models", ("weighed",)),
    Behaviour("an adapter on request, and without it again", "served_adapters", ("in_turn",)),
    Behaviour("an adapter while one answers", "served_adapters", ("while_one_answers",)),
    Behaviour("several adapters at once, and none", "served_adapters", ("at_once",)),
    Behaviour("an adapter of the default model", "served_adapters", ("default_model",)),
    Behaviour("reasoning and calls of tools", "served_markers", ("in_turn",)),
    Behaviour("the same in streams alone", "served_markers", ("in_streams",)),
    Behaviour("the same in one batch", "served_markers", ("in_one_batch",)),
    Behaviour("whole calls in each style of markers", "served_tools", ("*_whole",)),
    Behaviour("calls that the limit cuts", "served_tools", ("*_cut",)),
    Behaviour("calls that an end token breaks off", "served_tools", ("*_ended",)),
    Behaviour("stop strings in reasoning and after calls", "served_tools", ("*_stopped",)),
    Behaviour("calls in messages and responses", "served_tools", ("*_messages", "*_responses")),
    Behaviour("a thinking budget", "served_tools", ("budgets_alone",)),
    Behaviour("thinking budgets beside other thinking", "served_tools", ("budgets",)),
    Behaviour("a client leaves the last slot", "served_leaves", ("last_slot",)),
    Behaviour("a client leaves a stream beside others", "served_leaves", ("stream",)),
    Behaviour("a client leaves while it waits", "served_leaves", ("waiting",)),
    Behaviour("a client leaves at its last token", "served_leaves", ("last_token",)),
    Behaviour("a client leaves while its prompt is computed", "served_leaves", ("prefill",)),
    Behaviour("a client leaves an answer that it did not read", "served_leaves", ("unread",)),
    Behaviour("320 at once, of whom a quarter leave", "served_flood"),
    Behaviour("computes no rows, positions and bytes beyond what is asked", "cost_served"),
    Behaviour("bodies that are no JSON object, or huge", "served_malformed", ("bodies",)),
    Behaviour("messages of a wrong type", "served_malformed", ("messages",)),
    Behaviour("numbers of a wrong type or out of range", "served_malformed", ("numbers",)),
    Behaviour("other fields of a wrong type", "served_malformed", ("fields",)),
    Behaviour("images that are none", "served_malformed", ("media",)),
    Behaviour("an unknown model", "served_malformed", ("model",)),
    Behaviour("stop strings that are no text", "served_malformed", ("stop_*",)),
)
"""From the simplest. Malformed requests: refused with a reason, and nobody is harmed."""


_SCENARIOS = frozenset(what.scenario for what in BEHAVIOURS)
_LONGEST = 120  # characters of a finding
_FAMILIES = 3  # named in a cell
BEGIN, END = "<!-- table of servers: begin -->", "<!-- table of servers: end -->"
"""Marks around the table in a Markdown file."""


class Answer(enum.StrEnum):
    """Whether a server does something."""

    YES = "yes"
    NO = "no"
    NOT_OFFERED = "not offered"
    NOT_SHOWN = "not shown"
    NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Shown:
    """What one case shows of a behaviour; ``why`` is its first finding about it."""

    answer: Answer
    result: CaseResult
    why: str = ""


@dataclass(frozen=True)
class Cell:
    """A server's behaviour: ``shown`` in each case, the worst first."""

    answer: Answer
    shown: tuple[Shown, ...] = ()
    why: str = ""

    @property
    def evidence(self) -> CaseResult | None:
        """The case that decides."""
        return self.shown[0].result if self.shown else None

    @property
    def families(self) -> str:
        """If there are several families, those with this answer; empty if all have it."""
        some = [shown.result.family for shown in self.shown if shown.answer is self.answer]
        return "" if len(some) == len(self.shown) else listed(some, _FAMILIES)


@dataclass(frozen=True)
class Compatibility:
    """Servers by behaviours: for each behaviour a cell for each server."""

    servers: tuple[str, ...]
    versions: tuple[str, ...]
    rows: tuple[tuple[Behaviour, tuple[Cell, ...]], ...]

    @property
    def asked(self) -> tuple[tuple[Behaviour, tuple[Cell, ...]], ...]:
        """The rows of which some server was asked."""
        return tuple(row for row in self.rows if any(_asked(cell) for cell in row[1]))

    @property
    def not_asked(self) -> tuple[str, ...]:
        """What no server was asked."""
        return tuple(what.text for what, cells in self.rows if not any(map(_asked, cells)))

    def asked_of(self, server: int) -> tuple[tuple[Behaviour, Cell], ...]:
        """The rows of which this server was asked."""
        return tuple((what, cells[server]) for what, cells in self.rows if _asked(cells[server]))

    def not_asked_of(self, server: int) -> tuple[str, ...]:
        """What this server was not asked."""
        return tuple(what.text for what, cells in self.rows if not _asked(cells[server]))


def _asked(cell: Cell) -> bool:
    return cell.answer is not Answer.NOT_ASKED


def compatibility(results: Iterable[CaseResult], inventory: Inventory) -> Compatibility | None:
    """The table; ``None`` if no server was asked."""
    found = [result for result in results if result.scenario in _SCENARIOS]
    servers = tuple(dict.fromkeys(result.engine for result in found))
    if not servers:
        return None
    own = {name: [r for r in found if r.engine == name] for name in servers}
    rows = tuple(
        (what, tuple(_cell(what, name, own[name], inventory) for name in servers))
        for what in BEHAVIOURS
    )
    return Compatibility(servers, tuple(_versions(own[name]) for name in servers), rows)


def _cell(
    what: Behaviour, server: str, results: Sequence[CaseResult], inventory: Inventory
) -> Cell:
    cases = [result for result in results if result.scenario == what.scenario]
    shown = [found for result in cases if (found := _shown(what, result)) is not None]
    order = (Answer.NO, Answer.NOT_SHOWN, Answer.YES, Answer.NOT_OFFERED)
    shown.sort(key=lambda found: (order.index(found.answer), found.result.case))
    if shown:
        return Cell(shown[0].answer, tuple(shown), shown[0].why)
    families = {result.family for result in results}
    applicable = inventory.applicable.get(server)
    if applicable is None or any(what.scenario in applicable.get(f, ()) for f in families):
        return Cell(Answer.NOT_ASKED)
    return Cell(Answer.NOT_OFFERED, why="by what the engine declares, or the families asked")


def _shown(what: Behaviour, result: CaseResult) -> Shown | None:
    """What the schedules of a case show; ``None`` if they were not run."""
    made = [s for s in result.schedules if _about(what, s.name)]
    findings = [f for f in result.evidence if not f.verdict.good]
    whole = [f for f in findings if not f.schedule]
    if result.schedules and not made:
        return None
    verdicts = [schedule.verdict for schedule in made] or [result.verdict]
    own = [f for f in findings if f.schedule and _about(what, f.schedule)]
    if made and not own and result.verdict is Verdict.VACUOUS:
        verdicts.append(Verdict.VACUOUS)
    worst = most_severe(verdicts)
    bad = worst is not Verdict.TIE and worst is not Verdict.EXACT
    why = next((f.what for f in (*own, *whole)), "") if bad else ""
    return Shown(_answer(worst), result, _short(why))


def _about(what: Behaviour, schedule: str) -> bool:
    return not what.schedules or any(fnmatchcase(schedule, glob) for glob in what.schedules)


def _answer(verdict: Verdict) -> Answer:
    if verdict.good:
        return Answer.YES
    found = {Verdict.UNSUPPORTED: Answer.NOT_OFFERED, Verdict.VACUOUS: Answer.NOT_SHOWN}
    return found.get(verdict, Answer.NO)


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _versions(results: Sequence[CaseResult]) -> str:
    """The release of the server's library, and the families that were run."""
    names = ("mlx-vlm", "mlx-lm", "openai")
    versions = results[0].versions
    found = next((f"{name} {versions[name]}" for name in names if name in versions), "")
    families = sorted({result.family for result in results})
    return f"{found}, with {', '.join(families)}" if found else ", ".join(families)


def servers_markdown(found: Compatibility) -> list[str]:
    """The table's lines, and the cases that its cells lead to, folded away."""
    head = ["", *(code(name) for name in found.servers)]
    places = _places(found)
    rows = [[what.text, *(_marked(cell, places) for cell in cells)] for what, cells in found.asked]
    lines = [f"- {code(n)}: {v}" for n, v in zip(found.servers, found.versions, strict=True)]
    lines += ["", *table(head, rows)]
    if found.not_asked:
        lines += ["", *_folded("Not asked", [f"- {text}" for text in found.not_asked])]
    cases = [f'- <a id="{place}"></a>{code(one_line(case))}' for case, place in places.items()]
    return [*lines, "", *_folded("Cases", cases)]


def _folded(summary: str, lines: Sequence[str]) -> list[str]:
    return ["<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"]


def _places(found: Compatibility) -> dict[str, str]:
    """For each case that decides a cell its place in the list of cases."""
    cells = (cell for _, row in found.asked for cell in row)
    cases = dict.fromkeys(cell.evidence.case for cell in cells if cell.evidence)
    return {case: f"case-{number}" for number, case in enumerate(cases, 1)}


def _marked(cell: Cell, places: Mapping[str, str]) -> str:
    said = f"[{cell.answer}](#{places[cell.evidence.case]})" if cell.evidence else str(cell.answer)
    return f"{said} ({cell.families})" if cell.families else said


def with_table(text: str, found: Compatibility) -> str:
    """A Markdown text with the table between its marks; without marks, the table alone."""
    return between(text, BEGIN, END, "\n".join(servers_markdown(found)))
