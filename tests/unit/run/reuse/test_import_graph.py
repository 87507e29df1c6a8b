"""What import statements reach; cases without an earlier run are chosen by it."""

from types import SimpleNamespace

import pytest

from conformance.core.verdict import CaseId
from conformance.run.reuse import import_graph
from conformance.run.reuse.import_graph import imports, imports_of, reached
from conformance.run.reuse.planning import Reuse

FILES = {
    "__init__.py": "from .generate import go",
    "generate.py": "def go():\n    from .models import cache",
    "unused.py": "",
    "broken.py": "def (",
    "models/__init__.py": "",
    "models/cache.py": "import json",
    "models/rope.py": "from .cache import A",
    "models/llama.py": "from lib.models.rope import RoPE\nimport numpy",
    "models/other.py": "from . import cache",
    "models/vision/__init__.py": "from .tower import Tower",
    "models/vision/tower.py": "from ..rope import RoPE",
    "models/odd.py": "import lib.broken",
}


@pytest.fixture(autouse=True)
def lib(tmp_path, monkeypatch):
    for name, text in FILES.items():
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = {"lib": tmp_path / "lib"}
    monkeypatch.setattr(import_graph, "package_folder", found.get)
    imports.cache_clear()
    yield
    imports.cache_clear()


EVERY = {"lib", "lib.generate", "lib.models", "lib.models.cache"}


@pytest.mark.parametrize(
    ("module", "more"),
    [
        ("llama", {"lib.models.llama", "lib.models.rope"}),
        ("other", {"lib.models.other"}),
        ("vision", {"lib.models.vision", "lib.models.vision.tower", "lib.models.rope"}),
    ],
)
def test_imports_are_followed_also_within_functions(module, more):
    assert reached([f"lib.models.{module}"]) == EVERY | more


PLACES = (
    "if x:\n {}\nelif y:\n {}\nelse:\n {}",
    "for x in y:\n {}\nelse:\n {}",
    "while x:\n {}\nelse:\n {}",
    "with x:\n {}",
    "try:\n {}\nexcept A:\n {}\nelse:\n {}\nfinally:\n {}",
    "try:\n {}\nexcept* A:\n {}",
    "match x:\n case 1:\n  {}\n case _:\n  {}",
    "class A:\n {}",
    "async def a():\n async with x:\n  {}\n async for x in y:\n  {}",
)


@pytest.mark.parametrize("text", PLACES)
def test_imports_are_found_wherever_a_statement_may_be(text, tmp_path):
    number = text.count("{}")
    path = tmp_path / "module.py"
    path.write_text(text.format(*(f"import of_{n}" for n in range(number))))
    assert sorted(imports_of(path, "lib") or ()) == [f"of_{n}" for n in range(number)]


def test_what_cannot_be_read_may_import_anything():
    assert reached(["lib.models.none"]) is None
    assert reached(["lib.models.odd"]) is None
    assert reached(["elsewhere.models.llama"]) is None


def test_without_an_earlier_run_a_commit_selects_what_imports_its_modules():
    engine = SimpleNamespace(library="lib", capabilities=frozenset())
    families = {("lib", name): SimpleNamespace(module=name) for name in ("llama", "other", "none")}
    registry = SimpleNamespace(engines={"e": engine}, families=families)
    store = SimpleNamespace(hangs_on=lambda _: None)
    reuse = Reuse(registry, store, "full", lambda result: result)
    reuse.last = lambda cases: dict.fromkeys(map(str, cases))
    cases = [CaseId("e", name, "ragged", "float32", 0) for name in ("llama", "other", "none")]

    def chosen(*modules):
        return [case.family for case in reuse.touched(cases, modules).play]

    assert chosen("lib.models.rope") == ["llama", "none"], "of one without a file all is unknown"
    assert chosen("lib.models.cache") == ["llama", "other", "none"]
    assert chosen("lib.unused") == ["none"]
