"""docs/reference/, docs/defects.md and the causes in docs/servers.md are what the code says."""

import runpy

import pytest
from docs.documented import ROOT

MADE = runpy.run_path(str(ROOT / "ci/reference/__main__.py"))
PAGES = MADE["pages"]()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_is_what_the_code_says(name):
    kept = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert kept == PAGES[name], "run `python ci/reference`"


def test_no_page_is_there_that_nothing_writes():
    there = {f"reference/{path.name}" for path in (ROOT / "docs/reference").iterdir()}
    assert {*there, "defects.md", "servers.md"} == set(PAGES)


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
def test_what_each_page_is_for_is_in_it(name, said):
    assert said in PAGES[name]


def test_a_pipe_does_not_end_a_cell():
    assert MADE["cell"]("one | two\n three") == "one \\| two three"
