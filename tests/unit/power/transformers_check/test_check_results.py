"""Results as data, and which of them are as known."""

import msgspec
import pytest

from conformance.core.errors import GoldenError, ResultError
from conformance.core.schedule import Request
from conformance.power.transformers_check.check_results import (
    BEGIN,
    END,
    Explained,
    Reading,
    Result,
    State,
    decode,
    encode,
    markdown,
    placed,
    totals,
    write_verified,
)
from conformance.tools.golden.format import (
    Golden,
    Provenance,
    Recorded,
    golden_path,
    load_golden,
    to_text,
)

GOOD, BAD = Reading(1.0, 1e-5, 1e-5), Reading(400.0, 4e-3, 1e-5, 0)
CAUSE = (Explained("mlx_lm", "mlx_lm/models/x.py:1", "wrong"),)


def result(state=State.AGREES, **more):
    return Result("mlx_lm", "llama", "llama", state, **more)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (result(), True),
        (result(causes=CAUSE, proof=GOOD), False),  # the cause no longer shows
        (result(State.DISAGREES), False),
        (result(State.DISAGREES, causes=CAUSE), False),
        (result(State.DISAGREES, causes=CAUSE, proof=BAD), False),
        (result(State.DISAGREES, causes=CAUSE, proof=GOOD), True),
        (result(State.UNLOADABLE), False),
        (result(State.UNLOADABLE, causes=CAUSE, proof=GOOD), True),
        (result(State.UNBUILDABLE), False),
        (result(State.INSENSITIVE), False),
        (result(State.CRASHED), False),
        (result(State.ABSENT), True),
        (result(State.MISSING), True),
    ],
)
def test_what_is_as_known(found, expected):
    assert found.expected is expected


def test_only_what_agrees_is_verified():
    assert [state for state in State if result(state).verified] == [State.AGREES]


def test_a_defect_of_the_other_side_alone_leaves_the_library_verified():
    theirs = (Explained("transformers", "transformers/x.py:1", "wrong"),)
    assert result(State.DISAGREES, causes=theirs, proof=GOOD).verified
    assert not result(State.DISAGREES, causes=theirs, proof=BAD).verified
    assert not result(State.DISAGREES, causes=theirs).verified
    assert not result(State.DISAGREES, causes=(*theirs, *CAUSE), proof=GOOD).verified


def test_a_result_survives_its_line():
    found = result(State.DISAGREES, reading=BAD, causes=CAUSE, tokens=(1, 2), both={"a": 1})
    assert decode(encode(found), where="x") == found


@pytest.mark.parametrize("line", ["", "{}", '{"library": 1}', "[1"])
def test_a_malformed_line_is_reported_with_its_place(line):
    with pytest.raises(ResultError, match=r"r\.jsonl, line 3"):
        decode(line, where="r.jsonl, line 3")


def test_totals_count_each_state():
    found = [result(), result(), result(State.CRASHED)]
    assert totals(found) == "2 agrees, 1 the process crashed; 2 verified"
    assert msgspec.json.decode(encode(found[2]))["state"] == "the process crashed"


STREAM = Reading(1.0, 2e-5, 1e-5)
VERSIONS = {"transformers and torch": "transformers 5.23.0, torch 2.13.0"}


def result_of(family, state=State.AGREES, **more):
    more.setdefault("stream", STREAM)
    return Result("mlx_lm", family, family, state, tokens=(1, 2), versions=VERSIONS, **more)


@pytest.fixture
def root(tmp_path):
    recorded = Recorded(Request("a", (1, 2), 1), (3,), (0.5,), (0.1,), (((3, -0.1),),))
    for family in ("llama", "gemma"):
        provenance = Provenance("r", "w", {}, "cpu", "single stream")
        golden = Golden("mlx_lm", family, "float32", 0, provenance, (recorded,))
        path = golden_path(tmp_path, "mlx_lm", family)
        path.parent.mkdir(exist_ok=True)
        path.write_text(to_text(golden))
    return tmp_path


def verified(root, family):
    return load_golden(golden_path(root, "mlx_lm", family)).provenance.verified


def test_what_agrees_is_noted_and_nothing_else(root):
    said = write_verified(root, [result_of("llama"), result_of("gemma", State.DISAGREES)])
    assert said == "written to 1 goldens"
    found = verified(root, "llama")
    assert (found.against, found.difference, found.tokens) == ("transformers 5.23.0", 2e-5, 8)
    assert verified(root, "gemma") is None


def test_what_no_longer_agrees_is_taken_back(root):
    write_verified(root, [result_of("llama")])
    said = write_verified(
        root,
        [
            result_of("llama", State.DISAGREES),
            result_of("gemma", State.ABSENT),
        ],
    )
    assert said == "written to 0 goldens; removed from those of llama"
    assert verified(root, "llama") is None


def test_changed_fields_are_written(root):
    write_verified(root, [result_of("llama", both={"n_group": 1})])
    assert verified(root, "llama").against == "transformers 5.23.0 (n_group=1)"


def test_a_defect_of_the_other_side_that_was_worked_around_is_written(root):
    cause = (Explained("transformers", "transformers/x.py:1", "wrong"),)
    proof = Reading(1.0, 3e-5, 1e-5)
    write_verified(
        root,
        [result_of("llama", State.DISAGREES, stream=None, causes=cause, proof=proof)],
    )
    found = verified(root, "llama")
    assert found.against == "transformers 5.23.0 (but for transformers/x.py:1)"
    assert found.difference == 3e-5


def test_a_family_without_a_golden_is_reported(root):
    assert write_verified(root, [result_of("phi")]) == "written to 0 goldens; no golden of phi"


def test_a_damaged_golden_stays_as_it_is(root):
    path = golden_path(root, "mlx_lm", "llama")
    path.write_text(path.read_text().replace('"cpu"', '"gpu"'))
    before = path.read_bytes()
    with pytest.raises(GoldenError, match="digest"):
        write_verified(root, [result_of("llama")])
    assert path.read_bytes() == before


GOOD_ROW, BAD_ROW = Reading(1.25, 1e-5, 1e-5), Reading(400.0, 4e-3, 1e-5, 0)
RESULTS = [
    Result(
        "mlx_lm",
        "llama",
        "llama",
        State.AGREES,
        reading=GOOD_ROW,
        stream=GOOD_ROW,
        adjusted=("why",),
    ),
    Result(
        "mlx_lm",
        "gemma",
        "gemma",
        State.DISAGREES,
        reading=BAD_ROW,
        proof=GOOD_ROW,
        tokens=(1, 2),
        library_tokens=(1, 3),
        causes=(Explained("mlx_lm", "mlx_lm/models/gemma.py:98", "wrong GELU"),),
    ),
    Result("mlx_lm", "glm", "glm", State.DISAGREES, reading=BAD_ROW),
    Result("mlx_lm", "exaone", "exaone", State.ABSENT, words="no model type 'exaone'"),
]


def rows(text, name):
    return [line for line in text.splitlines() if line.startswith(f"| {name} |")]


def test_each_family_has_a_row():
    text = markdown(RESULTS)
    assert "| llama | 1.25 | 1.0e-05 | 1.25 |" in rows(text, "llama")[0]
    assert "| mlx_lm | 400 | 4.0e-03 | 1 2 | 1 3 | 1.25 |" in rows(text, "gemma")[0]
    assert "not explained" in rows(text, "glm")[0]
    assert "no model type 'exaone'" in rows(text, "exaone")[0]
    assert "| mlx_lm | `mlx_lm/models/gemma.py:98` | wrong GELU | gemma |" in text
    assert "- llama: why" in text


def test_the_ratios_of_right_and_wrong_are_reported_apart():
    assert "that agree 1.25 to 1.25" in markdown(RESULTS)
    assert "that disagree 400 to 400" in markdown(RESULTS)


def test_only_what_is_between_the_marks_is_replaced():
    before = f"# Head\n\n{BEGIN}\nyesterday\n{END}\n\ntail\n"
    after = placed(before, markdown(RESULTS))
    assert after.startswith("# Head\n\n" + BEGIN)
    assert after.endswith(END + "\n\ntail\n")
    assert "yesterday" not in after
    assert placed(after, markdown(RESULTS)) == after


def test_a_file_without_marks_becomes_the_table():
    assert placed("anything", markdown(RESULTS)) == markdown(RESULTS)
