"""Result files of ``conformance audit mutants``."""

from conformance.core.verdict import encode
from conformance.report.mutants import (
    Fate,
    Mutant,
    MutantKill,
    MutantResult,
    read_mutants,
    tally,
)


def result(fate=Fate.KILLED, *, module="m.py", after="x = 2", library="mlx_lm", **more):
    mutant = Mutant(module, "A.f", "number", "x = 1", after, 7, (7, 7), 70, 71, "2")
    return MutantResult(mutant, library, fate, {"mlx-lm": "1"}, **more)


KILLED = result(kill=MutantKill("mlx_lm/llama/ragged/float32/0", "a", "drift", ("forced",), "x"))


def written(path, *results):
    path.write_text("".join(encode(item) + "\n" for item in results))
    return path


def test_what_was_written_is_read(tmp_path):
    assert read_mutants([written(tmp_path / "a", KILLED)]) == (KILLED,)


def test_of_the_same_mutant_the_last_one_counts(tmp_path):
    first = written(tmp_path / "a", result(Fate.SURVIVED), result(after="x = 3"))
    second = written(tmp_path / "b", KILLED)
    assert [item.fate for item in read_mutants([first, second])] == ["killed", "killed"]


def test_a_line_that_was_being_written_is_left_out(tmp_path):
    path = written(tmp_path / "a.partial", KILLED)
    path.write_text(path.read_text() + encode(KILLED)[:40])
    assert read_mutants([path]) == (KILLED,)


def test_only_what_could_be_killed_is_in_the_share():
    counts = tally([result(fate) for fate in Fate])
    assert (counts.killed, counts.of, counts.share) == (1, 2, 0.5)
    assert tally([result(Fate.UNREACHED)]).share is None
