"""``conformance show CASE_ID``."""

import json

CASE = "toy/broken/ragged/float32/0"


def test_it_runs_the_case_and_prints_all_evidence(conformance):
    done = conformance("show", CASE)
    assert done.code == 1, done
    for part in (
        "diverged: toy/broken/ragged/float32/0 - NOT expected",
        "1. diverged (check tokens): the token differs from the single stream",
        "where:    schedule 'long_and_short', free run, request 'r2', step 7, row 1",
        "measured: difference 1.25, margin 0.42, noise 1.2e-05 nats",
        "9 forward calls in 0.25 s, 40 positions computed, 10 of them padding (25%)",
        "toy 1.2.3",
    ):
        assert part in done.out


def test_only_that_case_is_run(conformance, tmp_path):
    log = tmp_path / "log"
    done = conformance("show", "toy/calm/ragged/bfloat16/7", TOY_LOG=str(log))
    assert done.code == 0, done
    assert log.read_text().split()[1:] == ["toy/calm/ragged/bfloat16/7"]


def test_from_a_result_file_nothing_is_run(conformance, toy_run, tmp_path):
    toy_run("--family", "broken", "--json", "r.jsonl")
    done = conformance("show", CASE, "--from", "r.jsonl", TOY_LOG=str(tmp_path / "log"))
    assert done.code == 1
    assert "the token differs from the single stream" in done.out
    assert not (tmp_path / "log").exists()


def test_as_json(conformance):
    done = conformance("show", CASE, "--json")
    assert json.loads(done.out)["evidence"][0]["got"] == "token 93"


def test_a_case_that_is_not_in_the_file(conformance, toy_run):
    toy_run("--family", "calm", "--json", "r.jsonl")
    done = conformance("show", CASE, "--from", "r.jsonl")
    assert done.code == 2
    assert done.err.startswith(f"conformance: r.jsonl has no case {CASE}")


def test_a_misspelt_case_brings_a_suggestion(conformance):
    done = conformance("show", "toy/broken/raged/float32/0")
    assert done.code == 2
    assert done.err == (
        f"conformance: there is no case toy/broken/raged/float32/0; did you mean {CASE}?\n"
    )


def test_what_is_no_case_id(conformance):
    done = conformance("show", "broken")
    assert done.code == 2
    assert "show broken: name families, engines, scenarios, faults, plugins, " in done.err
    done = conformance("show", "toy/broken")
    assert done.code == 2
    assert "'toy/broken' is not a case id" in done.err


NOISY = """
import os
from conformance.run.hookspecs import hookimpl

@hookimpl
def conformance_faults():
    print("\\x1b[2Jloud", flush=True)
    os.write(1, b"\\x1b]0;title\\x07\\n")
    return []
"""


def test_what_code_of_others_prints_is_no_command_to_the_terminal_and_no_answer(
    conformance, tmp_path
):
    (tmp_path / "noisy.py").write_text(NOISY)
    done = conformance("show", "toy/calm/ragged/float32/0", "-p", "noisy", "--json")
    assert done.code == 0, done
    assert done.err == "\\x1b[2Jloud\n\\x1b]0;title\\x07\n"
    assert json.loads(done.out)["verdict"] == "exact"
    wrong = conformance("show", CASE, "-p", "noisy")
    assert f"rerun:      conformance show -p noisy {CASE}" in wrong.out
