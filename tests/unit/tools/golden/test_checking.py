"""What `golden check` finds: each kind of wrong, planted."""

import msgspec
import pytest
from miniatures.goldens import SensitiveLibrary
from miniatures.library import family
from miniatures.right import ContinuousBatching
from miniatures.wrong import AttendsToPadding

from conformance.core.family import Recipe
from conformance.tools.golden.checking import check, folder_problems
from conformance.tools.golden.format import golden_path, load_golden, to_text
from conformance.tools.golden.staging import accept, propose

FAMILY = family()
KNOWN = {("toy", "toy"): FAMILY}


class Heavier(SensitiveLibrary):
    scale = 1.5


class Elsewhere(Heavier):
    def device(self):
        return "slide rule"


class Rebuilt(SensitiveLibrary):
    """The same numbers from other bits, as from a parameter that nothing reads."""

    def fingerprint(self, model):
        return "e" * 64


class RebuiltElsewhere(Rebuilt):
    def device(self):
        return "slide rule"


class Lost(SensitiveLibrary):
    def load(self, family, *, dtype, seed):
        raise IndexError("list index out of range")


@pytest.fixture
def root(tmp_path):
    accept([propose((SensitiveLibrary(), FAMILY), root=tmp_path, expectations=None)])
    return tmp_path


def checked(
    root, library=SensitiveLibrary, *, of=FAMILY, engine=ContinuousBatching, files_only=False
):
    return check(
        (library(), of), root=root, engines=[engine], files_only=files_only, expectations=None
    )


def rewrite(root, **changed):
    """The golden with fields changed and a digest that fits, as a program would write it."""
    path = golden_path(root, "toy", "toy")
    golden = load_golden(path)
    source = {n: v for n, v in changed.items() if n in golden.provenance.__struct_fields__}
    rest = {n: v for n, v in changed.items() if n not in source}
    provenance = msgspec.structs.replace(golden.provenance, **source)
    path.write_text(to_text(msgspec.structs.replace(golden, provenance=provenance, **rest)))


def test_a_golden_that_holds_is_good(root):
    found = checked(root)
    assert (found.good, found.problems, found.differences) == (True, (), ())
    assert found.meaning == "the golden holds"


def test_a_missing_golden_is_reported(tmp_path):
    (problem,) = checked(tmp_path).problems
    assert problem.endswith("toy.json: missing; `conformance golden update` makes it")


def test_an_edited_recipe_makes_it_stale(root):
    facts = msgspec.structs.replace(FAMILY.facts, weights=Recipe(logit_scale=2.0))
    edited = msgspec.structs.replace(FAMILY, facts=facts)
    (problem,) = checked(root, of=edited, files_only=True).problems
    assert "stale: the family's config, weights recipe or prompts" in problem


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"library": "other"}, "field 'library' is 'other', by its place it must be 'toy'"),
        ({"family": "other"}, "field 'family' is 'other'"),
        ({"dtype": "float16"}, "field 'dtype' is 'float16'"),
        ({"seed": 1}, "field 'seed' is 1"),
        ({"recipe": "x"}, "field 'provenance.recipe' is no SHA-256"),
        ({"weights": ""}, "field 'provenance.weights' is no SHA-256"),
        ({"versions": {}}, "field 'provenance.versions' is empty"),
        ({"device": ""}, "field 'provenance.device' is empty"),
        ({"oracle": ""}, "field 'provenance.oracle' is empty"),
    ],
)
def test_wrong_provenance_is_reported_with_its_field(root, changed, sentence):
    rewrite(root, **changed)
    assert any(sentence in problem for problem in checked(root, files_only=True).problems)


def test_files_only_loads_no_model(root):
    assert checked(root, Lost, files_only=True).good


def test_other_weights_fail_the_comparison_with_the_golden(root):
    found = checked(root, Heavier)
    assert not found.good
    assert found.meaning == "the library's output changed, single-stream and batched alike"
    assert any("provenance.weights" in problem for problem in found.problems)


def test_other_bits_alone_are_reported_on_the_same_device_only(root):
    (problem,) = checked(root, Rebuilt).problems
    assert "the library loads other parameters from the same recipe" in problem
    assert checked(root, RebuiltElsewhere).good
    assert checked(root, Elsewhere).problems == ()
    assert not checked(root, Elsewhere).good


def test_what_fails_is_reported_in_lines(root):
    assert checked(root).lines() == []
    label, *rest = checked(root, engine=AttendsToPadding).lines()
    assert label == "toy/toy: the batch differs; the single stream still gives the golden"
    assert "request 'two', step " in rest[0]
    assert "margin" in rest[0]
    assert len({line.partition(": ")[0] for line in rest}) == len(rest), "one line a comparison"
    (missing,) = checked(root / "elsewhere").lines()
    assert missing.endswith("toy.json: missing; `conformance golden update` makes it")


def test_engines_of_other_libraries_are_left_out(root):
    class Stranger(AttendsToPadding):
        library = "other"

    assert checked(root, engine=Stranger).good


def test_whatever_a_library_raises_is_a_problem_of_this_one(root):
    assert checked(root, Lost).problems == ("toy/toy: IndexError: list index out of range",)


# The folder ---------------------------------------------------------------------------------------


def problems(root, families=KNOWN, without=None):
    return list(folder_problems(root, families, {"toy"}, without or {}))


def test_a_folder_of_goldens_is_right(root):
    assert problems(root) == []
    (root / "README.md").touch()
    (root / "without.toml").touch()
    assert problems(root) == []


def test_an_orphan_is_reported(root):
    (problem,) = problems(root, {})
    assert problem.endswith("toy.json: an orphan: library 'toy' has no family 'toy'")


def test_goldens_of_libraries_that_are_not_meant_are_left_alone(root):
    (root / "other").mkdir()
    (root / "other" / "x.json").touch()
    (root / "other" / "x.partial").touch()
    assert problems(root) == []


def test_what_an_interrupted_run_left_is_reported(root):
    (root / "toy" / ".toy.json.7.partial").touch()
    (problem,) = problems(root)
    assert "no golden by its name" in problem
    assert list(folder_problems(root, KNOWN, {"toy"}, {}, writing=True)) == []


def test_a_reason_for_none_must_be_true(root):
    (message,) = problems(root, without={("toy", "toy"): "why"})
    assert "says why this family has no golden, but it has one" in message
    (message,) = problems(root, without={("toy", "gone"): "why"})
    assert "field 'toy.gone' names no family" in message


def test_on_another_device_a_difference_may_be_the_devices(root):
    rewrite(root, device="slide rule")
    found = checked(root, Heavier)
    assert found.meaning == (
        "the library's output changed, single-stream and batched alike, or the device rounds "
        "otherwise: the golden is of slide rule, this is abacus; see `conformance golden "
        "check --cpu`"
    )
    assert checked(root).meaning == "the golden holds"
