"""Vectors of a family without a model, and traces of playing them, made by hand."""

import hashlib
import json

import msgspec
import pytest

from conformance.core.schedule import Arrival, Removal, Request, Schedule, Stage, Trigger
from conformance.tools.golden.format import Golden, Provenance, Recorded, to_text
from conformance.tools.vectors.reading import (
    FORMAT,
    Exported,
    FamilyVectors,
    Manifest,
    ScenarioFile,
    sealed,
)

VOCAB = 16
TOKENS = {"a": (5, 6, 7), "b": (8, 9, 10), "c": (11, 12)}
# Of request a's second token the margin is within the noise, so that a tie can be had.
MARGINS = {("a", 1): 1e-5}
NOISE = 1e-5


def top(name, step):
    """The four most likely tokens: the golden's, and the next ones by number."""
    first = TOKENS[name][step]
    margin = MARGINS.get((name, step), 1.0)
    rest = [(first + i, -0.5 - margin - i + 1) for i in range(1, 4)]
    return ((first, -0.5), *((token % VOCAB, value) for token, value in rest))


def recorded(name):
    steps = range(len(TOKENS[name]))
    return Recorded(
        Request(name, (1, 2, 3), len(TOKENS[name])),
        TOKENS[name],
        tuple(MARGINS.get((name, step), 1.0) for step in steps),
        tuple(NOISE for _ in steps),
        tuple(top(name, step) for step in steps),
    )


def request(name, **more):
    return Request(name, (1, 2, 3), len(TOKENS[name]), **more)


SCHEDULES = (
    Schedule("plain", (Arrival((request("a"), request("b"))),)),
    Schedule(
        "moving",
        (
            Arrival((request("a"), request("b"))),
            Arrival((request("c"),), Trigger("a", Stage.DECODE, 2)),
        ),
        removals=(Removal(("b",), Trigger("b", Stage.DECODE, 1)),),
    ),
)


@pytest.fixture
def write_vectors(tmp_path):
    """Write vectors of one family, ``toy``, in one scenario, ``ragged``."""

    def write(schedules=SCHEDULES, dtype="float32", **changes):
        folder = tmp_path / "vectors"
        (folder / "toy" / "model").mkdir(parents=True)
        (folder / "toy" / "model" / "config.json").write_text("{}")
        golden = Golden(
            "toys",
            "toy",
            dtype,
            0,
            Provenance("r", "w", {}, "abacus", "single stream"),
            tuple(map(recorded, TOKENS)),
        )
        (folder / "toy" / "golden.json").write_text(to_text(golden))
        exported = tuple(
            Exported(s, {r.request_id: r.request_id for r in s.requests}) for s in schedules
        )
        file = ScenarioFile("ragged", "prompts of unequal length: padding", exported)
        (folder / "toy" / "ragged.json").write_bytes(msgspec.json.encode(file))
        files = {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob("*")
            if path.is_file()
        }
        family = FamilyVectors(VOCAB, ("ragged",), (), files)
        values = {
            "format": FORMAT,
            "library": "toys",
            "engine": "toy",
            "dtype": dtype,
            "seed": 0,
            "versions": {},
            "device": "abacus",
            "families": {"toy": family},
            "families_left_out": {},
            "digest": "",
        }
        manifest = sealed(Manifest(**{**values, **changes}))
        (folder / "manifest.json").write_bytes(msgspec.json.encode(manifest))
        return folder

    return write


@pytest.fixture
def vectors(write_vectors):
    return write_vectors()


def header(schedule="plain", **changes):
    return {
        "record": "header",
        "format": 1,
        "engine": "other",
        "device": "abacus",
        "dtype": "float32",
        "family": "toy",
        "scenario": "ragged",
        "schedule": schedule,
        **changes,
    }


def token(name, step, **changes):
    return {
        "record": "token",
        "request_id": name,
        "step": step,
        "token": TOKENS[name][step],
        "top": [list(pair) for pair in top(name, step)],
        "row": "abc".index(name),
        **changes,
    }


def finish(name, reason="length"):
    return {"record": "finish", "request_id": name, "reason": reason}


@pytest.fixture
def plain():
    """A right run of the schedule ``plain``."""
    return [
        header(),
        *(token(name, step) for step in range(3) for name in "ab"),
        finish("a"),
        finish("b"),
        {"record": "end"},
    ]


@pytest.fixture
def moving():
    """A right run of the schedule ``moving``."""
    return [
        header("moving"),
        token("a", 0),
        token("b", 0),
        {"record": "removed", "request_ids": ["b"]},
        token("a", 1),
        {"record": "arrived", "request_ids": ["c"]},
        token("a", 2),
        finish("a"),
        token("c", 0),
        token("c", 1),
        finish("c"),
        {"record": "end", "cache_bytes": 0},
    ]


@pytest.fixture
def write_trace(tmp_path):
    """A trace file of these lines; text stands as it is."""

    def write(*runs, text=None):
        lines = [json.dumps(line) for run in runs for line in run]
        path = tmp_path / "trace.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines) if text is None else text)
        return path

    return write
