"""docs/reference/, docs/defects.md and the causes in docs/servers.md are what the code says."""

import runpy

import pytest
from docs.documented import ROOT

NAMES = {f"reference/{path.name}" for path in (ROOT / "docs/reference").iterdir()}
NAMES |= {"defects.md", "servers.md"}


@pytest.fixture(scope="module")
def made():
    return runpy.run_path(str(ROOT / "ci/reference/__main__.py"))


@pytest.fixture(scope="module")
def pages(made):
    return made["pages"]()


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_page_is_what_the_code_says(name, pages):
    kept = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert kept == pages.get(name), "run `python ci/reference`"


def test_each_page_that_is_written_is_there(pages):
    assert set(pages) == NAMES


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("reference/cli.md", "## conformance golden update"),
        ("reference/pytest.md", "| `--conformance-family GLOB` | `conformance_family` |"),
        ("reference/hooks.md", "| `conformance_engines()` |"),
        ("reference/hooks.md", "from conformance import Engine"),
        ("reference/formats.md", "| `request_ids` | list of string | yes |"),
        ("reference/scenarios.md", "| 50 | [`ragged`](#ragged) |"),
        ("reference/faults.md", "[mlx-vlm #1030](https://github.com/Blaizzy/mlx-vlm/issues/1030)"),
    ],
)
def test_what_each_page_is_for_is_in_it(pages, name, said):
    assert said in pages[name]


def test_a_pipe_does_not_end_a_cell(made):
    assert made["cell"]("one | two\n three") == "one \\| two three"
