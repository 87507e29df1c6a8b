"""The result of a case: its verdict, its evidence, and its record in a result file.

The record (``CaseResult``) is one line of a result file; ``schema/result.schema.json`` is its
published form.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable

import msgspec

from conformance.core.contracts import Cost
from conformance.core.errors import ResultError
from conformance.core.invocation import Invocation
from conformance.core.picture import Picture
from conformance.core.plain_text import is_plain
from conformance.core.schedule import Schedule
from conformance.core.user_files import typed_json

MOST_FINDINGS = 40
"""Most findings that a result keeps: one defect can show in every row of every schedule."""


class Verdict(enum.StrEnum):
    """The outcome of a case, ordered from best to worst: a case is as bad as its worst schedule."""

    EXACT = "exact"
    TIE = "tie"
    POLICY = "policy"
    UNSUPPORTED = "unsupported"
    VACUOUS = "vacuous"
    COST = "cost"
    DRIFT = "drift"
    DIVERGED = "diverged"
    UNSTABLE = "unstable"
    LEAK = "leak"
    PROTOCOL = "protocol"
    NAN = "nan"
    ORACLE = "oracle"
    HANG = "hang"
    CRASH = "crash"

    @property
    def good(self) -> bool:
        """Whether batched decoding gave the same result as single-stream decoding."""
        return self in (Verdict.EXACT, Verdict.TIE)

    @property
    def severity(self) -> int:
        """Position in the order from best to worst."""
        return list(Verdict).index(self)


def most_severe(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of the verdicts; exact without any."""
    return max(verdicts, key=lambda verdict: verdict.severity, default=Verdict.EXACT)


class CaseId(msgspec.Struct, frozen=True, order=True):
    """Identifies a case; as text ``mlx_lm/qwen3_5/staggered/float32/0``."""

    engine: str
    family: str
    scenario: str
    dtype: str
    seed: int

    def __str__(self) -> str:
        return f"{self.engine}/{self.family}/{self.scenario}/{self.dtype}/{self.seed}"

    @classmethod
    def parse(cls, text: str) -> CaseId:
        """The case id written as ``text``.

        Raises:
            ResultError: ``text`` does not have five parts, or its seed is not a number.
        """
        parts = text.split("/")
        if len(parts) != 5 or not parts[4].isdecimal():
            raise ResultError(
                f"{text!r} is not a case id; it must look like mlx_lm/llama/ragged/float32/0"
            )
        return cls(parts[0], parts[1], parts[2], parts[3], int(parts[4]))


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One problem that a check found. Five of its fields make the message of a failure.

    Attributes:
        verdict: how bad it is.
        check: the check that found it.
        what: one sentence with the expected and the actual value.
        schedule: the schedule in which it was found.
        mode: forced or free; empty if it concerns neither.
        request_id: the request concerned, if any.
        step: index of the output token concerned, counted from 0 for the request's first token.
        row: the request's row on the batch axis, where known.
        expected: the oracle's value.
        got: the engine's value.
        margin: the oracle's best logprob minus its second at that step (nats).
        difference: largest absolute logprob difference found (nats).
        noise: the largest change that rounding alone may cause at that step (nats).
        ratio: largest difference over its noise, of all steps of the request.
        cause: the likely cause, as text.
        known: ids of the entries of ``expectations/`` that allow it; empty for a new finding.
        mended: ids of the known defects that were mended in that run; empty if the code ran as
            released.
    """

    verdict: Verdict
    check: str
    what: str
    schedule: str = ""
    mode: str = ""
    request_id: str | None = None
    step: int | None = None
    row: int | None = None
    expected: str = ""
    got: str = ""
    margin: float | None = None
    difference: float | None = None
    noise: float | None = None
    ratio: float | None = None
    cause: str = ""
    known: str = ""
    mended: str = ""


class ScheduleResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one schedule of a case.

    ``host_reads`` counts the reads from device to host in the first run; ``longest_wait`` is the
    largest number of model calls that a decoding request waited for its next token. ``seconds`` is
    the wall time of its runs and checks, including single streams and noise computed for it.

    ``cache_share`` is the size of its quantized caches divided by the size without quantization;
    ``quantized_share`` is the same for the quantized layers only.

    ``costs`` are its counts for contracts, if it has any.

    ``single_logprob`` is the sum of the logprobs of its single streams' tokens, in nats, but for
    requests that are removed.

    ``wrong`` are the wrong requests of all its findings, each with its first wrong output token: a
    result holds only some of the findings.
    """

    name: str
    verdict: Verdict
    forward_calls: int = 0
    forward_seconds: float = 0.0
    padded_positions: int = 0
    real_positions: int = 0
    host_reads: int = 0
    longest_wait: int = 0
    cache_share: float | None = None
    quantized_share: float | None = None
    seconds: float = 0.0
    costs: tuple[Cost, ...] = ()
    single_logprob: float | None = None
    wrong: tuple[str, ...] = ()


class WitnessResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a case showed one of its scenario's witnesses.

    ``schedules`` are the schedules that showed it. ``excused`` is the reason why a missing witness
    is not required: something the engine declares, or that no schedule made for it was run.
    """

    name: str
    schedules: tuple[str, ...] = ()
    excused: str = ""


class MendedResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """A case with known defects, rerun with those defects mended.

    ``defects`` are the ids of their entries; ``schedules`` are the schedules that were rerun
    because they had failed as released. ``alone``: the case was not run as released, as another
    case of the run shows these defects; the verdict and all schedules are those with the mends.
    """

    verdict: Verdict
    defects: tuple[str, ...]
    schedules: tuple[str, ...] = ()
    seconds: float = 0.0
    alone: bool = False


class CaseResult(msgspec.Struct, frozen=True):
    """One line of a result file.

    ``expected`` is true if the verdict is the wanted one: ``exact`` or ``tie``, or the verdict that
    an entry of ``expectations/`` names (``known`` is the id of that entry). ``max_abs_diff`` and
    ``noise`` are in nats; ``ratio`` is the largest difference over its noise; ``first_bad_step`` is
    the first output token with a finding. ``versions`` are of packages; for a checkout,
    ``mlx-lm source`` is path and commit. ``seconds`` is wall time; ``forward_seconds`` is the part
    spent in model calls. ``picture`` is the data for the page of a wrong case; ``traits`` are the
    model's traits (``cache:ArraysCache``, ``rope:M-RoPE``, ``part:ssm.ssm_update``), which known
    defects of shared code refer to. ``invocation`` is the run that ran the case. ``left_out`` are
    schedules of the scenario that are not in the run's tier. ``key`` is a hash of everything the
    case depends on, if known; ``reused`` means that the result is from an earlier run with the same
    key. ``mended`` is the case with its defects mended; ``unmended`` are ids of defects without a
    mend, which may hide others. ``exercised`` are the capabilities that the case used. ``smallest``
    is the smallest schedule that was found to fail like a failed workload.
    """

    case: str
    engine: str
    family: str
    scenario: str
    dtype: str
    seed: int
    verdict: Verdict
    expected: bool
    max_abs_diff: float | None
    noise: float | None
    first_bad_step: int | None
    evidence: tuple[Finding, ...]
    versions: dict[str, str]
    device: str
    seconds: float
    forward_seconds: float = 0.0
    ratio: float | None = None
    known: str | None = None
    schedules: tuple[ScheduleResult, ...] = ()
    witnesses: tuple[WitnessResult, ...] = ()
    schema: int = 1
    picture: Picture | None = None
    invocation: Invocation | None = None
    left_out: tuple[str, ...] = ()
    key: str = ""
    reused: bool = False
    traits: tuple[str, ...] = ()
    mended: MendedResult | None = None
    unmended: tuple[str, ...] = ()
    exercised: tuple[str, ...] = ()
    smallest: Schedule | None = None

    @property
    def mended_alone(self) -> bool:
        """Whether the case was run with its known defects mended, and not as released."""
        return self.mended is not None and self.mended.alone

    @property
    def right_as_released(self) -> bool:
        """Whether the code as released gave the right result."""
        return self.verdict.good and not self.mended_alone

    @property
    def right_once_mended(self) -> bool:
        """Whether all findings are known, and none remains once those defects are mended."""
        good = self.mended is not None and self.mended.verdict.good
        return self.expected and good and not self.unmended


SCHEMA = 1
"""Version of the result format; results of other versions are refused."""


def encode(record: msgspec.Struct) -> str:
    """The record as one line of JSON, without the newline; non-finite floats become null."""
    try:
        return msgspec.json.encode(record).decode()
    except UnicodeEncodeError:  # a name from a file may have half of a surrogate pair
        return json.dumps(msgspec.to_builtins(record))


def decode(line: str | bytes, *, where: str = "result") -> CaseResult:
    """Parse a result from one line of JSON.

    Raises:
        ResultError: the line is not a result, has another schema version, or its case contradicts
            its fields; the message names the place and the field.
    """
    result = typed_json(line, CaseResult, where, ResultError)
    if result.schema != SCHEMA:
        raise ResultError(
            f"{where}: field 'schema' is {result.schema}, this release reads {SCHEMA}"
        )
    named = CaseId(result.engine, result.family, result.scenario, result.dtype, result.seed)
    if result.case != str(named):
        raise ResultError(
            f"{where}: field 'case' is {result.case!r}, but the other fields name {str(named)!r}"
        )
    if not is_plain(result.case):
        raise ResultError(f"{where}: field 'case' holds characters that cannot be seen")
    return result
