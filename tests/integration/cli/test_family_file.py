"""``--family-file``."""

FAMILY = '{"vocab_size": 16, "conformance": {"library": "toy"}}'


def test_a_family_of_one_s_own_is_run(toy_run, tmp_path):
    (tmp_path / "mine.json").write_text(FAMILY)
    done = toy_run("--family", "mine", "--family-file", "mine.json", "--json", "r.jsonl")
    assert done.code == 0, done
    assert {r["family"] for r in done.results()} == {"mine"}


def test_workers_and_reruns_know_it_too(toy_run, tmp_path):
    (tmp_path / "silent.json").write_text(FAMILY)
    done = toy_run("--family", "silent", "--family-file", "silent.json", "--jobs", "2")
    assert done.code == 1, done
    wanted = f"conformance show --family-file {tmp_path / 'silent.json'} toy/silent/ragged"
    assert wanted in done.out


def test_a_malformed_file_is_one_sentence(toy_run, tmp_path):
    (tmp_path / "mine.json").write_text('{"vocab_size": 16')
    done = toy_run("--family-file", "mine.json")
    assert done.code == 2
    assert "mine.json: not JSON, line 1" in done.err
    assert "Traceback" not in done.err
