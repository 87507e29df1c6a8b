"""Plugins: what they provide is found, and what is wrong with one is reported with its name."""

import re
import signal
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, version
from types import ModuleType

import pytest

from conformance.core import signals
from conformance.core.engine import Capability, Engine
from conformance.core.errors import ConformanceError, FamilyError, PluginError
from conformance.core.family import Facts, Family
from conformance.core.faults import Fault
from conformance.core.library import Coverage, Library
from conformance.core.unavailable import Unavailable, sentences
from conformance.run import hosting
from conformance.run.hookspecs import hookimpl
from conformance.run.registry import build_registry, select
from conformance.scenarios import Scenario


class Abacus(Library):
    name = "abacus"

    def coverage(self):
        return Coverage(modules=(), excluded={})

    def versions(self):
        return {}

    def device(self):
        return "wood"

    def load(self, family, *, dtype, seed): ...
    def meter(self, model, *, evaluate=False): ...
    def single_stream(self, model, request, **options): ...
    def stateless(self, model, request, tokens): ...
    def teacher_forced(self, model, request, tokens, **options): ...
    def churn(self): ...


class Beads(Engine):
    name = "beads"
    library = "abacus"
    capabilities = frozenset({Capability.FORCED})

    def __init__(self, model, options): ...
    def insert(self, submissions): ...
    def step(self): ...
    def remove(self, request_ids): ...
    def close(self): ...


def family(name="calm", library="abacus"):
    return Family(name, Facts(library=library), {"vocab_size": 16})


def scenario(name, rung, *needs):
    return Scenario(name, rung, "a rung", frozenset(needs), lambda brief: ())


def fault(name="flip"):
    return Fault(name, "class", "source", "wrong", "abacus", (), (), lambda hits: None)


def plugin(_name="made_here", /, **hooks):
    """A plugin module whose hooks give these things; an exception is raised instead."""
    module = ModuleType(_name)
    for name, given in hooks.items():
        setattr(module, f"conformance_{name}", hookimpl(_giver(given)))
    return module


def _giver(given):
    def function():
        if isinstance(given, Exception):
            raise given
        return given

    return function


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch):
    """No plugin but those of the test."""
    monkeypatch.setattr(hosting, "_entry_points", list)


@pytest.fixture
def entry(monkeypatch):
    """Install an entry point that loads the module ``module``, or text as such a module."""

    def install(module, name="guest"):
        before = hosting._entry_points()
        if not isinstance(module, str):
            found = f"{name}_module_{len(before)}"
            monkeypatch.setitem(sys.modules, found, module)
            module = found
        more = EntryPoint(name, module, "mlx_conformance")
        monkeypatch.setattr(hosting, "_entry_points", lambda: [*before, more])

    return install


WHOLE = {
    "libraries": [Abacus()],
    "families": [family("calm"), family("Bold")],
    "engines": [Beads],
    "scenarios": [scenario("late", 2, Capability.CANCEL), scenario("early", 1)],
    "faults": [fault()],
}


def test_all_that_plugins_bring_is_found_by_name():
    found = build_registry([plugin(**WHOLE)])
    assert list(found.libraries) == ["abacus"]
    assert list(found.families) == [("abacus", "Bold"), ("abacus", "calm")]
    assert found.engines == {"beads": Beads}
    assert list(found.scenarios) == ["early", "late"], "in the order of their rungs"
    assert list(found.faults) == ["abacus/flip"]
    assert [f.name for f in found.families_of(Beads)] == ["Bold", "calm"]
    assert [s.name for s in found.scenarios_for(Beads)] == ["early"], "it cannot cancel"


def test_a_family_file_that_is_malformed_is_the_users_error(tmp_path):
    path = tmp_path / "calm.json"
    path.write_text("{")
    with pytest.raises(FamilyError, match=r"calm\.json: not JSON"):
        build_registry([plugin(**WHOLE)], family_files=[path])


class Unfinished(Engine):
    name, library, capabilities = "unfinished", "abacus", frozenset()

    def __init__(self, model, options): ...
    def insert(self, submissions): ...
    def step(self): ...
    def close(self): ...


def engine(**attributes):
    return type("Odd", (Beads,), attributes)


WRONG = pytest.mark.parametrize(
    ("hooks", "message"),
    [
        (
            {"families": RuntimeError("no disk")},
            r"conformance_families\(\) raised RuntimeError: no disk",
        ),
        (
            {"families": FamilyError("x.json: not JSON")},
            r"conformance_families\(\): x\.json: not JSON",
        ),
        ({"families": None}, r"conformance_families\(\) raised TypeError: .*not iterable"),
        ({"families": ["calm"]}, r"conformance_families\(\) must return Family objects, returned"),
        ({"families": [family("a/b")]}, r"conformance_families\(\): the name 'a/b' must be"),
        ({"families": [family("far", "moon")]}, r"family 'far' is for library 'moon'"),
        ({"families": [family("calm")]}, r"family 'calm' exists already, plugin '.*' provides it"),
        ({"libraries": [Abacus()]}, r"library 'abacus' exists already"),
        ({"scenarios": [scenario("early", 9)]}, r"scenario 'early' exists already"),
        ({"scenarios": [lambda brief: ()]}, r"conformance_scenarios\(\) must return Scenario obj"),
        ({"faults": [fault()]}, r"fault 'flip' exists already"),
        ({"faults": [print]}, r"conformance_faults\(\) must return Fault objects, returned b"),
        ({"engines": [engine()]}, r"engine 'beads' exists already"),
        ({"engines": [print]}, r"conformance_engines\(\) must return subclasses of Engine"),
        ({"engines": [Beads(None, None)]}, r"conformance_engines\(\) must return subclasses of"),
        ({"engines": [engine(name="far", library="moon")]}, r"engine 'far' is for library 'moon'"),
        ({"engines": [engine(name="a b")]}, r"conformance_engines\(\): the name 'a b' must be"),
        ({"engines": [Unfinished]}, r"class Unfinished has no method 'remove'"),
        ({"engines": [Engine]}, r"class Engine has no attribute 'name'"),
        (
            {"engines": [engine(capabilities=frozenset({"fly"}))]},
            r"class Odd declares an unknown capability: 'fly'",
        ),
        (
            {"engines": [engine(capabilities="forced")]},
            r"class Odd must declare its capabilities as a frozenset",
        ),
        *(
            (
                {"engines": [engine(packages=packages)]},
                r"class Odd must declare packages as a tuple of names",
            )
            for packages in ("pluggy", ["pluggy"], (1,))
        ),
        (
            {"engines": [engine(prefix_reuse={"smallest": 16})]},
            r"class Odd must declare prefix_reuse as a PrefixReuse",
        ),
    ],
)


@WRONG
def test_what_is_wrong_is_reported_in_one_sentence_with_the_plugins_name(entry, hooks, message):
    entry(plugin(**WHOLE), name="good")
    guest = plugin("guest", **hooks)
    with pytest.raises(PluginError, match=rf"^plugin 'guest': .*{message}") as caught:
        build_registry([guest])
    assert "\n" not in str(caught.value)


@WRONG
def test_what_is_wrong_with_an_installed_plugin_leaves_out_that_alone(entry, hooks, message):
    entry(plugin(**WHOLE), name="good")
    whole = build_registry()
    entry(plugin(**hooks), name="guest")
    found = build_registry()
    (line,) = sentences(found.unavailable)
    assert "\n" not in line
    assert line.startswith("plugin 'guest' is used without ")
    assert replace(found, unavailable=(), plugins=()) == replace(whole, plugins=())


@pytest.fixture
def far(entry):
    """A plugin that names its engine, beside one that does not; the calls of its slow hook."""
    calls = []
    moon = type("Moon", (Abacus,), {"name": "moon"})()
    slow = plugin(
        "slow",
        engine_names=["far"],
        engines=[engine(name="far", library="moon")],
        families=[family("crater", "moon")],
    )
    slow.conformance_libraries = hookimpl(lambda: calls.append("imported") or [moon])
    entry(slow, name="slow")
    entry(plugin(**WHOLE), name="good")
    return calls


@pytest.mark.parametrize(
    ("globs", "imported"),
    [
        ((), True),
        (("beads",), False),
        (("b*",), False),
        (("beads", "far"), True),
        (("*",), True),
        (("beads", "nowhere"), True),  # so that the error names all that there are
    ],
)
def test_a_plugin_that_names_its_engines_is_left_out_where_none_is_wanted(far, globs, imported):
    found = build_registry(engines=globs)
    assert bool(far) is imported
    assert set(found.engines) == ({"beads", "far"} if imported else {"beads"})
    assert (("moon", "crater") in found.families) is imported


def test_a_plugin_is_not_left_out_if_another_one_needs_its_library(far, entry):
    entry(plugin(engines=[engine(name="beside", library="moon")]), name="more")
    assert set(build_registry(engines=["beside"]).engines) == {"beads", "far", "beside"}
    assert far


def test_what_is_wrong_is_reported_whatever_is_left_out(far, entry):
    entry(plugin(families=RuntimeError("no disk")), name="torn")
    assert sentences(build_registry(engines=["beads"]).unavailable) == [
        "plugin 'torn' is used without its families: RuntimeError: no disk"
    ]
    assert not far


@pytest.mark.parametrize("names", [["beads", "gone"], []])
def test_a_plugin_that_names_other_engines_than_it_has_is_reported(names):
    with pytest.raises(PluginError, match=r"conformance_engine_names\(\) must name the .*: beads$"):
        build_registry([plugin(**WHOLE, engine_names=names)])


class Fatal(BaseException):
    pass


ENDS = [SystemExit("needs torch"), KeyboardInterrupt("needs torch"), Fatal("needs torch")]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
def test_what_would_end_the_process_is_reported(entry, tmp_path, monkeypatch, end):
    def ends():
        raise end

    guest = ModuleType("guest")
    guest.conformance_libraries = hookimpl(ends)
    said = f"{type(end).__name__}: needs torch"
    with pytest.raises(PluginError, match=rf"^plugin 'guest': .*{said}"):
        build_registry([guest])
    entry(guest)
    text = "class Fatal(BaseException): pass\nraise {}('needs torch')\n"
    (tmp_path / "leaves_at_once.py").write_text(text.format(type(end).__name__))
    monkeypatch.syspath_prepend(tmp_path)
    entry("leaves_at_once", name="other")
    entry(plugin(**WHOLE), name="good")
    found = build_registry()
    assert found.engines == {"beads": Beads}
    assert sentences(found.unavailable) == [
        f"plugin 'other' is left out: (leaves_at_once) could not be loaded: {said}",
        f"plugin 'guest' is used without its libraries: {said}",
    ]
    sys.modules.pop("leaves_at_once", None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_hook_runs_is_not_taken_for_its_failure(entry, number):
    guest = ModuleType("guest")
    guest.conformance_libraries = hookimpl(lambda: signal.raise_signal(number))
    entry(guest)
    with signals.interruptible(), pytest.raises(KeyboardInterrupt):
        build_registry()


def test_the_plugin_that_came_first_keeps_its_name(entry):
    entry(plugin(**WHOLE), name="first")
    entry(plugin(faults=[fault(), fault("other")]), name="second")
    found = build_registry()
    assert list(found.faults) == ["abacus/flip", "abacus/other"]
    assert sentences(found.unavailable) == [
        "plugin 'second' is used without fault 'flip': exists already, plugin 'first' provides it"
    ]


def bad_argument():
    guest = ModuleType("guest")
    guest.conformance_families = hookimpl(lambda config: [])
    return guest


def unmarked():
    guest = ModuleType("guest")
    guest.conformance_families = list
    return guest


@pytest.mark.parametrize(
    ("guest", "message"),
    [
        (plugin("guest", famly=[]), "unknown hook 'conformance_famly'.*conformance_families"),
        (bad_argument(), r"\{'config'\}"),
        (unmarked(), "implements no hook"),
    ],
)
def test_a_plugin_that_is_none_is_reported_and_left_out(entry, guest, message):
    with pytest.raises(PluginError, match=rf"^plugin 'guest'.*{message}") as caught:
        build_registry([guest])
    assert "\n" not in str(caught.value)
    entry(plugin(**WHOLE), name="good")
    entry(guest)
    found = build_registry()
    assert found.engines == {"beads": Beads}
    (line,) = sentences(found.unavailable)
    assert re.search(rf"^plugin 'guest' is left out: .*{message}", line)


TORN = {**WHOLE, "engine_names": ["beads"], "libraries": RuntimeError("no disk")}


def test_what_is_asked_of_a_plugin_that_is_left_out_says_why(entry):
    entry(plugin(**TORN), name="torn")
    entry("no_such_module", name="gone")
    found = build_registry()
    for glob, why in (("beads", "no disk"), ("b*", "no disk"), ("gone", "no_such_module")):
        with pytest.raises(
            ConformanceError, match=re.escape(glob) + f"' cannot be used here: .*{why}"
        ):
            found.select_engines([glob])
    with pytest.raises(ConformanceError, match="no engine matches 'far'"):
        found.select_engines(["far"])


def test_what_an_engine_may_lack_is_known_of_its_plugin_and_of_its_librarys(entry):
    mends = [Unavailable("rows of mends", "ImportError: no ssm")]
    entry(plugin(**WHOLE, mends=mends), name="good")
    entry(plugin(engines=[engine(name="beside")], faults=OSError("none")), name="more")
    entry(plugin(families=RuntimeError("no disk")), name="other")
    found = build_registry()
    assert sorted(found.engines) == ["beads", "beside"]
    assert found.lacking(["be*"]) == ()
    for glob in ("beads", "beside"):
        (one,) = found.lacking([glob], also=["conformance_mends"])
        assert sentences([one]) == [
            "plugin 'good' is used without rows of mends: ImportError: no ssm"
        ]
    assert [one.plugin for one in found.lacking(["other"])] == ["other"]


def test_of_the_usual_engines_those_are_played_that_are_there(entry):
    entry(plugin(**WHOLE), name="good")
    found = build_registry()
    assert found.usual_engines(["beads", "far"]) == ("beads",)
    assert found.usual_engines(["far"]) == ("far",), "so that the error names it"


NAMES = ("llama", "qwen2", "qwen3")


def test_a_glob_that_matches_nothing_is_reported():
    with pytest.raises(
        ConformanceError, match=r"no family matches 'phi\*'; there are llama, qwen2"
    ):
        select(NAMES, ("llama", "phi*"), what="family")


def test_a_plugins_folders_of_known_defects_are_kept(tmp_path):
    registry = build_registry([plugin(**WHOLE, expectations=[tmp_path])])
    assert registry.expectations == (tmp_path,)


@pytest.mark.parametrize("given", ["known", "nowhere"])
def test_known_defects_must_be_in_a_folder(tmp_path, given):
    wrong = str(tmp_path) if given == "known" else tmp_path / given
    with pytest.raises(
        PluginError, match=r"'guest': conformance_expectations\(\) must return paths"
    ):
        build_registry([plugin("guest", **WHOLE, expectations=[wrong])])


def test_results_have_the_versions_of_an_engines_own_packages():
    class Packaged(Beads):
        packages = ("pluggy", "no-such-package")

    registry = build_registry([plugin(**WHOLE | {"engines": [Packaged]})])
    assert registry.versions_of("beads") == {"pluggy": version("pluggy")}
