"""``conformance diff``."""

import json

FAMILIES = ("--family", "calm", "--family", "broken")


def changed(folder, source, target, **fields):
    """A copy of a result file with fields of all its results replaced."""
    lines = (folder / source).read_text().splitlines()
    text = "\n".join(json.dumps(json.loads(line) | fields) for line in lines)
    (folder / target).write_text(text + "\n")


def test_a_run_compared_with_itself(conformance, toy_run, tmp_path):
    toy_run(*FAMILIES, "--json", "a.jsonl")
    done = conformance("diff", "a.jsonl", "a.jsonl")
    assert done.code == 0, done
    assert "as before" in done.out

    changed(tmp_path, "a.jsonl", "b.jsonl", verdict="crash", expected=False)
    worse = conformance("diff", "a.jsonl", "b.jsonl", "--markdown", "d.md")
    assert worse.code == 1, worse
    assert "newly failing" in worse.out
    assert (tmp_path / "d.md").read_text().startswith("### Conformance: regressed")

    mended = conformance("diff", "b.jsonl", "a.jsonl")
    assert mended.code == 0, mended
    assert "fixed" in mended.out


def test_bad_input_is_one_sentence(conformance, toy_run, tmp_path):
    toy_run("--family", "calm", "--json", "a.jsonl")
    (tmp_path / "bad.jsonl").write_text("no json\n")
    (tmp_path / "empty.jsonl").write_text("")
    for name, words in (
        ("bad.jsonl", "conformance: bad.jsonl, line 1: "),
        ("empty.jsonl", "conformance: no results in empty.jsonl"),
    ):
        done = conformance("diff", "a.jsonl", name)
        assert done.code == 2, done
        assert done.err.startswith(words)
        assert done.err.count("\n") == 1
    done = conformance("diff", "a.jsonl", "a.jsonl", "--markdown", "no/folder/d.md")
    assert done.err.startswith("conformance: --markdown: there is no folder")
