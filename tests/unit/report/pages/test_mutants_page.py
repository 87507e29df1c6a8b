"""The outcome of mutants as a page."""

from results_by_hand import HOSTILE

from conformance.report.mutants import Fate, Mutant, MutantKill, MutantResult
from conformance.report.pages.environment import Renderer
from conformance.report.pages.mutants_page import render_mutants, sections


def result(fate, *, after="x = 2", library="mlx_lm", kill=None, why=""):
    mutant = Mutant(f"{library}/m.py", "A.f", "number", "x = 1", after, 7, (7, 7), 70, 71, "2")
    versions = {library: "1.0"}
    return MutantResult(mutant, library, fate, versions, kill, played=3, reaching=5, why=why)


def render(*results):
    return render_mutants(results, Renderer())


def test_each_library_has_a_section_with_its_counts():
    kill = MutantKill("mlx_lm/llama/ragged/float32/0", "a", "drift")
    found = sections([result(Fate.KILLED, kill=kill), result(Fate.SURVIVED, library="mlx_vlm")])
    assert [section.library for section in found] == ["mlx_lm", "mlx_vlm"]
    assert found[0].all.counts == (1, 0, 0, 0, 0, 0)
    assert found[0].by == (("drift", 1),)
    assert [row.name for row in found[1].modules] == ["mlx_vlm/m.py"]


def test_a_survivor_is_listed_with_what_it_changes():
    text = render(result(Fate.SURVIVED))
    assert "<code>mlx_lm/m.py:7</code> A.f (number): 3 of 5 schedules played" in text
    assert "- x = 1\n+ x = 2" in text
    assert "0 of 1 mutants that are reached and not equivalent were killed" in text


def test_a_reason_is_shown():
    assert "x is not used" in render(result(Fate.EQUIVALENT, why="x is not used"))


def test_nothing_of_a_mutant_is_markup():
    for name in HOSTILE:
        assert "<script>" not in render(result(Fate.SURVIVED, after=name))
