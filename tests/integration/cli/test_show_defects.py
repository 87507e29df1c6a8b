"""``conformance show defects``: what is wrong upstream, listed, selected and in full."""

import json

import pytest
from click.testing import CliRunner

from conformance.app.cli.main import group

ENTRIES = """
package = "mlx-lm"
[[defect]]
id = "one-family"
suffers = "llama answers otherwise beside a longer prompt."
families = ["llama"]
where = "mlx_lm.models.llama:Model.__call__"
why = "The mask is that of another row."
versions = ">=0.32.0,<=0.32.2"
[defect.verdicts]
ragged = "diverged"
[[defect]]
id = "all-families"
families = ["*"]
where = "mlx_lm/generate.py:1"
why = "The caches are not given back."
script = "docs/defects/toy.py"
versions = ">=0.32.0,<=0.32.2"
[defect.verdicts]
held = "leak"
[[unsupported]]
id = "metal-only"
families = ["bitnet"]
dtypes = ["*"]
text = "No Metal back-end"
why = "It has only a Metal kernel."
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("expectations")
    (made / "mlx_lm.toml").write_text(ENTRIES, encoding="utf-8")
    return str(made)


@pytest.fixture
def show(folder):
    def call(*words, own=True):
        own = ["--expectations", folder] if own else []
        return CliRunner().invoke(group, ["show", *words, *own], env={"COLUMNS": "100"})

    return call


def ids(done):
    assert done.exit_code == 0, done.output
    return [one["id"] for one in json.loads(done.stdout)]


def test_the_list_has_what_reaches_most_first(show):
    done = show("defects")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "2 known upstream defects of mlx-lm 0.32.2, those of most reach first"
    assert lines[2].startswith("  1 all-families: wasted work and memory in ")
    second = lines.index("  2 one-family: wrong tokens in llama of mlx-lm")
    assert lines[second + 1] == "    llama answers otherwise beside a longer prompt."


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["all-families", "one-family"]),
        (("--class", "tokens"), ["one-family"]),
        (("--family", "mamba"), ["all-families"]),
        (("--family", "llam*", "--class", "tokens", "--class", "waste"), [
            "all-families",
            "one-family",
        ]),
        (("--library", "mlx_lm", "--class", "crash"), []),
    ],
)  # fmt: skip
def test_options_select_from_the_list(show, options, expected):
    assert ids(show("defects", "--json", *options)) == expected


def test_one_in_full(show):
    done = show("defects", "one-family")
    assert done.exit_code == 0, done.output
    assert "  where:      mlx_lm/models/llama.py:" in done.stdout
    assert "  script:     conformance repro one-family\n" in done.stdout
    assert json.loads(show("defects", "one-family", "--json").stdout)["families"] == ["llama"]


def test_what_a_library_refuses_has_its_message(show):
    assert "  message:    No Metal back-end\n" in show("defects", "metal-only").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("defects", "one-famly"), "there is no known defect one-famly; did you mean one-family?"),
        (("defects", "x" * 9), "(`conformance show defects` lists all)"),
        (("defects", "--library", "mlx_vlm"), "no library matches 'mlx-vlm'"),
        (("defects", "--family", "lama"), "did you mean llama?"),
        (("defects", "one-family", "--class", "crash"), "name no ID"),
        (("engines", "one-family"), "go with `conformance show defects`"),
        (("engines", "--class", "crash"), "go with `conformance show defects`"),
    ],
)
def test_a_wrong_call_ends_in_one_sentence(show, words, message):
    done = show(*words)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


def test_the_projects_own_defects_are_shown_without_a_folder(show):
    done = show("defects", "mamba-padded-state", own=False)
    assert done.exit_code == 0, done.output
    assert "  where:      mlx_lm/models/mamba.py:" in done.stdout
    assert "reference-mamba-padded-state" in done.stdout
    assert "conformance repro mamba-padded-state --issue" in done.stdout
