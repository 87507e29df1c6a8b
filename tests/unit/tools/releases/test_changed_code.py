"""What a release changed in its code, and which families that reaches: read from files."""

import pytest

from conformance.core.family import Facts, Family
from conformance.core.upstream_functions import Place
from conformance.tools.releases.changed_code import Code, touched

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
