"""``--json``."""

import json
from datetime import UTC, datetime

import jsonschema
import pytest
from schemas import published_schema


def test_each_case_is_a_line_of_the_published_schema(toy_run):
    done = toy_run("--family", "broken", "--family", "tied", "--json", "r.jsonl")
    validator = jsonschema.Draft202012Validator(published_schema())
    assert len(done.results()) == 6
    for result in (done.header(), *done.results()):
        validator.validate(result)
    header = done.header()
    assert header.pop("run")
    assert header.pop("started") == done.results()[0]["invocation"]["started"]
    assert header == {
        **{"record": "run", "planned": 6, "stopped": "", "schema": 1},
        **{"devices": [], "tier": "full", "shard": ""},
    }


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.nightly)])
def test_each_line_has_the_command_and_the_date_of_its_run(toy_run, jobs):
    done = toy_run("--family", "[bt]*", "--jobs", jobs, "--json", "r.jsonl")
    found, *others = [result["invocation"] for result in done.results()]
    assert all(other == found for other in others)
    assert found["command"].endswith(f"--family '[bt]*' --jobs {jobs} --json r.jsonl")
    started = datetime.fromisoformat(found["started"])
    assert 0 <= (datetime.now(UTC) - started).total_seconds() < 100


def test_a_file_of_an_older_version_and_one_of_a_newer_are_read(toy_run, conformance, tmp_path):
    toy_run("--family", "calm", "--json", "r.jsonl")
    lines = (tmp_path / "r.jsonl").read_text().splitlines()
    header, *older = map(json.loads, lines)
    for result in older:
        del result["invocation"]
    newer = [{**result, "from_the_future": [1]} for result in older]
    for name, results in (("older", older), ("newer", newer)):
        text = "".join(json.dumps(line) + "\n" for line in (header, *results))
        (tmp_path / f"{name}.jsonl").write_text(text)
        assert conformance("report", f"{name}.jsonl").code == 0


def test_lines_have_the_order_of_the_selection_however_workers_finish(toy_run):
    done = toy_run("--family", "[cqt]*", "--jobs", "2", "--json", "r.jsonl", TOY_SECONDS="0.02")
    families = [r["family"] for r in done.results()]
    assert families == sorted(families)
    assert [r["scenario"] for r in done.results()[:3]] == ["repeat", "ragged", "staggered"]


def test_nothing_else_is_left(toy_run):
    done = toy_run("--family", "calm", "--json", "r.jsonl")
    assert [path.name for path in done.folder.iterdir()] == ["r.jsonl"]


def test_a_missing_folder_is_reported_before_the_run(toy_run, tmp_path):
    done = toy_run("--family", "calm", "--json", "no/r.jsonl", TOY_LOG=str(tmp_path / "log"))
    assert done.code == 2
    assert done.err == f"conformance: --json: there is no folder {tmp_path / 'no'}\n"
    assert not (tmp_path / "log").exists()
