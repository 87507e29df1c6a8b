"""What became of each entry in a release, and what is left to read."""

import defects_by_hand
import msgspec
import pytest
from results_by_hand import make_finding, make_result

from conformance.checks.expectations.bound_places import Bound
from conformance.checks.expectations.lock import PlayedLock
from conformance.core.family import Facts, Family
from conformance.core.upstream_functions import Place
from conformance.core.verdict import Finding, MendedResult, ScheduleResult, Verdict
from conformance.report.message import CHANGED, RULE
from conformance.tools.releases.pins import Release
from conformance.tools.releases.refreshing import Code, Fate, Touched, page, refreshed, touched

NEW, OLD = Release("mlx-lm", "0.33.0"), Release("mlx-lm", "0.32.2")
TOUCHED = Touched(("mlx_lm.models.mamba",), ("mamba",), (), ())
WHERE = "mlx_lm.models.mamba:Mamba.__call__+1"


class SameCode:
    """A release whose functions all have one digest."""

    def __init__(self, digest):
        self.digest = digest

    def function(self, place):
        return self.digest


def entry(**changes):
    found = defects_by_hand.entry(**changes)
    return msgspec.structs.replace(found, functions={found.where: Bound(3, "same", "file")})


def case(verdict="diverged", family="mamba", scenario="ragged", **changes):
    found = make_result(
        f"mlx_lm/{family}/{scenario}/float32/0",
        Verdict(verdict),
        versions={"mlx-lm": "0.33.0"},
        schedules=(ScheduleResult("one", Verdict(verdict)),),
    )
    return msgspec.structs.replace(found, **changes)


def looks_like_it(**changes):
    said = f"{CHANGED} lost-state, its function changed here: mlx_lm/models/mamba.py:3"
    rule = Finding(Verdict.DIVERGED, RULE, said)
    return case(evidence=(make_finding(), rule), **changes)


def known(**changes):
    return case(expected=True, known="lost-state", **changes)


def sort(*results, digest="same", entries=None, touched=TOUCHED, **more):
    entries = [entry()] if entries is None else entries
    return refreshed(NEW, OLD, touched, SameCode(digest), entries=entries, results=results, **more)


MENDED = MendedResult(Verdict.EXACT, ("lost-state",), ("one",), 0.1, alone=True)


@pytest.mark.parametrize(
    ("result", "digest", "fate", "items"),
    [
        (known(), "same", Fate.STILL, 0),
        (case("exact"), "same", Fate.FIXED, 1),
        (case("exact"), "other", Fate.FIXED, 1),
        (looks_like_it(), "other", Fate.CHANGED, 1),
        (case(), "same", Fate.UNSEEN, 1),  # a new failure
        (case("exact", mended=MENDED, known="lost-state"), "same", Fate.UNSEEN, 0),
        (case("exact", left_out=("two",)), "same", Fate.UNSEEN, 0),
        (case("exact", family="llama"), "same", Fate.UNSEEN, 0),
        (case("exact", scenario="staggered"), "same", Fate.UNSEEN, 0),
    ],
)
def test_an_entry_is_sorted_by_what_its_cases_show(result, digest, fate, items):
    found = sort(result, digest=digest)
    assert [one.fate for one in found.entries] == [fate]
    assert found.to_read == items


def test_an_entry_that_shows_in_some_of_its_cases_has_changed():
    both = entry(families=("mamba", "llama"))
    found = sort(known(), case("exact", family="llama"), entries=[both])
    assert found.entries[0].fate is Fate.CHANGED
    assert found.entries[0].right == ("mlx_lm/llama/ragged/float32/0",)
    by_time = msgspec.structs.replace(both, by_time=True)
    assert sort(known(), case("exact", family="llama"), entries=[by_time]).to_read == 0


def test_entries_of_one_place_are_one_item():
    both = [entry(), entry(name="also", why="As lost-state, elsewhere.")]
    found = sort(case("exact"), entries=both)
    assert len(found.entries) == 2
    assert found.to_read == 1


def test_an_entry_of_another_library_is_not_sorted():
    assert sort(known(), entries=[entry(package="mlx-vlm")]).entries == ()


def test_a_model_that_cannot_be_loaded_is_one_line():
    refused = [
        case("unsupported", family="gone", scenario=scenario, schedules=())
        for scenario in ("ragged", "staggered")
    ]
    refused[1] = msgspec.structs.replace(refused[1], expected=True)  # of another entry
    about = entry(name="of-it", families=("gone",))
    touched = Touched((), ("mamba",), ("lost",), ())
    found = sort(*refused, known(), entries=[entry(), about], touched=touched)
    assert (found.lacking, found.new, found.to_read) == (("lost", "gone"), (), 1)
    assert "- lost, gone (1 entries are about these alone)" in page(found)


def test_the_page_has_what_to_read_first():
    lines = page(sort(case(), looks_like_it(family="mamba"), digest="other"))
    titles = [line for line in lines if line.startswith("#")]
    assert titles[0] == "# mlx-lm 0.33.0, compared with 0.32.2"
    assert titles[1:] == ["## New failures", "## Changed"]
    assert lines[2].startswith("2 items to read. 2 cases of 1 families ran; 1 modules differ")
    (changed,) = (line for line in lines if "another source" in line)
    assert changed == (
        f"- `lost-state`: another source: {WHERE}; wrong: mlx_lm/mamba/ragged/float32/0"
    )
    (new,) = (line for line in lines if "conformance show" in line)
    assert new.startswith("- mamba: 1 case fails, at `ragged`: ")
    still = page(sort(known()))
    assert still[-1] == "1 entries: lost-state"


@pytest.mark.parametrize(
    ("now", "digest", "fate"),
    [
        ("diverged", "same", Fate.STILL),
        ("diverged", "other", Fate.CHANGED),
        ("exact", "same", Fate.FIXED),
        ("crash", "same", Fate.CHANGED),
        ("unsupported", "same", Fate.UNSEEN),
    ],
)
def test_an_entry_of_which_no_case_ran_is_seen_by_its_own_schedule(now, digest, fate):
    small = PlayedLock("lost-state", "mlx_lm/mamba/wide/float32/0", Verdict.DIVERGED, Verdict(now))
    other = PlayedLock("another", "mlx_lm/mamba/wide/float32/0", Verdict.DRIFT, Verdict.DRIFT)
    (one,) = sort(digest=digest, locked=(small, other)).entries
    assert one.fate is fate
    now = " is crash, was diverged" if now == "crash" else ""
    where = (f"mlx_lm/mamba/wide/float32/0 (its own schedule{now})",)
    assert (one.wrong or one.right) == (where if fate is not Fate.UNSEEN else ())


FILES = {
    "__init__.py": "",
    "version.py": "__version__ = '1'",
    "generate.py": "from .models import cache\n\n\ndef step():\n    pass\n",
    "models/cache.py": "class KVCache:\n    def update(self):\n        return 1\n",
    "models/ssm.py": "def scan(x):\n    return x\n",
    "models/llama.py": "from .cache import KVCache\n",
    "models/mamba2.py": "from .ssm import scan\n",
    "models/qwen/__init__.py": "from .language import Model\n",
    "models/qwen/language.py": "class Model:\n    pass\n",
}
FAMILIES = tuple(
    Family(name, Facts(library="mlx_lm", module=module), {"vocab_size": 16})
    for name, module in (("llama", ""), ("mamba2", ""), ("qwen", ""), ("qwen-4bit", "qwen"))
)


def written(folder, **changes):
    for name, text in (FILES | changes).items():
        if text is not None:
            path = folder / "mlx_lm" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return Code(folder / "mlx_lm")


@pytest.mark.parametrize(
    ("changes", "families", "shared"),
    [
        ({}, (), ()),
        ({"version.py": "__version__ = '2'"}, (), ()),
        ({"models/llama.py": "# moved\n\nfrom .cache import KVCache\n"}, (), ()),
        ({"models/llama.py": "x = 1\n"}, ("llama",), ()),
        ({"models/ssm.py": "def scan(x):\n    return -x\n"}, ("mamba2",), ()),
        ({"models/qwen/language.py": "Model = 1\n"}, ("qwen", "qwen-4bit"), ()),
        ({"models/new.py": "x = 1\n"}, (), ()),
        (
            {"models/cache.py": "class KVCache:\n    pass\n"},
            tuple(family.name for family in FAMILIES),
            ("mlx_lm.models.cache",),
        ),
        ({"models/llama.py": "def broken(:\n"}, ("llama",), ()),
    ],
)
def test_a_family_is_touched_if_its_model_reaches_a_changed_module(
    tmp_path, changes, families, shared
):
    before = written(tmp_path / "old")
    found = touched(before, written(tmp_path / "new", **changes), FAMILIES)
    assert (found.families, found.shared, found.lacking) == (families, shared, ())


def test_a_model_that_is_gone_has_no_cases(tmp_path):
    before = written(tmp_path / "old")
    found = touched(before, written(tmp_path / "new", **{"models/mamba2.py": None}), FAMILIES)
    assert found.lacking == ("mamba2",)
    assert found.modules == ("mlx_lm.models.mamba2",)
    assert found.families == ()


def test_the_digest_is_that_of_the_release(tmp_path):
    one = written(tmp_path / "old")
    moved = written(
        tmp_path / "new", **{"models/cache.py": "import os\n" + FILES["models/cache.py"]}
    )
    place = Place("mlx_lm.models.cache", "KVCache.update")
    assert one.function(place) == moved.function(place) != ""
    assert one.function(Place("mlx_lm.models.cache", "KVCache.gone")) == ""
    assert one.function(Place("mlx_lm.models.gone", "f")) == ""
