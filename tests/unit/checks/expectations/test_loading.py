"""Files of expectations: a good one, the project's own, and one message for each mistake."""

import re

import pytest

from conformance.checks.expectations import load_expectations
from conformance.checks.expectations.loading import OWN, SHOWN
from conformance.core.errors import ExpectationError
from conformance.core.verdict import Verdict

GOOD = """
package = "mlx-lm"
[[defect]]
id = "lost-state"
families = ["plamo2"]
where = "mlx_lm/models/plamo2.py:123"
why = "The state is taken at the padded end."
script = "docs/defects/mlx_lm/lost_state.py"
versions = ">=0.32.0,<=0.32.2"
[defect.verdicts]
ragged = "diverged"
[defect.schedules]
ragged = ["two_rows"]
[[unsupported]]
id = "metal-only"
families = ["bitnet"]
dtypes = ["*"]
device = "cpu"
text = "metal_kernel"
why = "It has no CPU path."
"""


@pytest.fixture
def load(tmp_path):
    def write_and_load(text, name="mlx_lm.toml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return load_expectations(tmp_path)

    return write_and_load


def test_a_good_file_is_read_with_its_defaults(load):
    found = load(GOOD)
    (defect,), (refusal,) = found.defects, found.refusals
    assert defect.engines == refusal.engines == ("mlx_lm",)
    assert defect.package == "mlx-lm"
    assert defect.dtypes == ("float32",)
    assert defect.may_show_in == ()
    assert defect.verdicts == {"ragged": Verdict.DIVERGED}
    assert defect.schedules == {"ragged": ("two_rows",)}
    assert refusal.scenarios == ("*",)


def test_a_verdict_on_numbers_may_be_a_list(load):
    text = GOOD.replace('ragged = "diverged"', 'ragged = ["drift", "diverged"]')
    assert load(text).defects[0].wanted("ragged") == (Verdict.DRIFT, Verdict.DIVERGED)


def test_what_hangs_on_a_moment_may_also_be_of_the_protocol(load):
    text = GOOD.replace('"diverged"', '["diverged", "protocol"]')
    (defect,) = load(text.replace("versions", "by_time = true\nversions", 1)).defects
    assert defect.wanted("ragged") == (Verdict.DIVERGED, Verdict.PROTOCOL)


def test_an_entry_can_be_about_other_engines(load):
    text = GOOD.replace('id = "lost-state"', 'id = "lost-state"\nengines = ["mlx_lm*"]')
    assert load(text).defects[0].engines == ("mlx_lm*",)


def test_the_projects_own_files_are_found_from_anywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert (OWN / "mlx_lm.toml").is_file()
    assert load_expectations() == load_expectations(OWN)


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(ExpectationError, match=r"missing: there is no such folder"):
        load_expectations(tmp_path / "missing")


def test_a_script_is_a_file_another_entrys_or_written(load):
    written = GOOD.replace('script = "docs/defects/mlx_lm/lost_state.py"\n', "")
    assert load(GOOD).defects[0].by_hand
    assert not load(written).defects[0].by_hand
    entry = GOOD[GOOD.index("[[defect]]") : GOOD.index("[[unsupported]]")]
    other = entry.replace('"lost-state"', '"other"')
    same = other.replace("docs/defects/mlx_lm/lost_state.py", "lost-state")
    first, second = load(written + same).defects
    assert (first.script, second.script, second.by_hand) == ("", "lost-state", False)
    with pytest.raises(ExpectationError, match=r"entry 'other': field 'script' .* is neither"):
        load(GOOD + same)


def test_what_an_entry_hides_has_an_entry(load):
    line = 'versions = ">=0.32.0,<=0.32.2"\n'
    assert load(GOOD.replace(line, f'{line}behind = ["lost-state"]\n', 1))
    with pytest.raises(
        ExpectationError, match=r"entry 'lost-state': field 'behind' names no entry"
    ):
        load(GOOD.replace(line, f'{line}behind = ["found-state"]\n', 1))


def test_an_entry_hides_what_names_the_family_or_has_traits(load):
    entry = GOOD[GOOD.index("[[defect]]") : GOOD.index("[[unsupported]]")]
    line = 'versions = ">=0.32.0,<=0.32.2"\n'
    plamo, both = 'families = ["plamo2"]', 'families = ["plamo2", "mamba"]'
    shared = entry.replace('"lost-state"', '"shared"').replace(
        line, f'{line}traits = ["cache:X"]\n'
    )
    own = entry.replace('"lost-state"', '"own"')
    behind = GOOD.replace(line, f'{line}behind = ["own", "shared"]\n', 1)
    wide, alone = (
        load(text + own + shared).defects[0] for text in (behind.replace(plamo, both), behind)
    )
    assert (wide.hides("plamo2"), wide.hides("mamba")) == (("own", "shared"), ("shared",))
    assert alone.hides("plamo2") == ("own", "shared")


def test_without_verdicts_it_is_behind_another_entry(load):
    entry = GOOD[GOOD.index("[[defect]]") : GOOD.index("[[unsupported]]")]
    hidden = entry[: entry.index("[defect.verdicts]")].replace('"lost-state"', '"hidden"')
    line = 'versions = ">=0.32.0,<=0.32.2"\n'
    first, second = load(GOOD.replace(line, f'{line}behind = ["hidden"]\n', 1) + hidden).defects
    assert (first.hides("plamo2"), second.verdicts) == (("hidden",), {})
    with pytest.raises(
        ExpectationError, match=r"'hidden': fields 'verdicts' and 'other_seeds' are empty, and it"
    ):
        load(GOOD + hidden)
    load(GOOD + hidden + 'other_seeds = ["traffic"]\n')


def test_an_id_is_unique_in_the_folder(load):
    load(GOOD)
    with pytest.raises(ExpectationError, match=r"entry 'lost-state': field 'id' is used 2 times"):
        load(GOOD.replace('"metal-only"', '"other"'), "other.toml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[defect]]", "[[defect", r"mlx_lm\.toml: not TOML: .*line 3"),
        ("[[defect]]", "[[defects]]", r"mlx_lm\.toml: unknown field 'defects'"),
        ('package = "mlx-lm"', "", r"mlx_lm\.toml: field 'package' must name"),
        ("[[unsupported]]", "[unsupported]", r"field 'unsupported' must be written as \[\["),
        ('id = "lost-state"', "", r"defect 'number 1': .*missing required field `id`"),
        ("versions =", 'changed_in = "1"\nversions =', "field 'changed_in' is none of a file"),
        ("versions =", "version =", r"defect 'lost-state': .*unknown field `version`"),
        ('["plamo2"]', '"plamo2"', r"defect 'lost-state': .*`\$\.families`"),
        ('["plamo2"]', "[]", r"defect 'lost-state': field 'families' is empty"),
        ('"The state is taken at the padded end."', '""', r"'lost-state': field 'why' is empty"),
        ('">=0.32.0,<=0.32.2"', '"newest"', r"'lost-state': field 'versions': 'newest' is no"),
        ('">=0.32.0,<=0.32.2"', '""', r"'lost-state': field 'versions' is empty"),
        ('"diverged"', "[]", r"'verdicts.ragged': 'nothing' is not a verdict"),
        ('"diverged"', '["drift", "tie"]', r"'verdicts.ragged': 'tie' is not a verdict"),
        ('"diverged"', '["drift", "crash"]', "'verdicts.ragged': a list may hold"),
        ('"diverged"', '["drift", "protocol"]', "by_time or of a server also protocol"),
        ('"diverged"', '["unstable", "hang"]', r"with unstable, for uninitialized memory"),
        ('"diverged"', '"wrong"', r"'lost-state': .*'wrong'.*`\$\.verdicts"),
        ('"diverged"', '"tie"', r"'lost-state': field 'verdicts\.ragged': 'tie' is not a verdict"),
        (
            'ragged = "diverged"',
            "",
            r"'lost-state': field 'schedules.ragged' is empty, or 'verdicts'",
        ),
        ('ragged = ["two', 'window = ["two', r"'lost-state': field 'schedules\.window' is empty"),
        ('["two_rows"]', "[]", r"'lost-state': field 'schedules\.ragged' is empty"),
        (
            "versions =",
            'other_seeds = ["ragged"]\nversions =',
            "field 'other_seeds': 'ragged' is in 'verdicts'",
        ),
        ('text = "metal_kernel"', 'text = ""', r"unsupported 'metal-only': field 'text' is empty"),
        ('dtypes = ["*"]', "", r"unsupported 'metal-only': .*missing required field `dtypes`"),
    ],
)
def test_a_mistake_is_reported_in_one_sentence_with_file_entry_and_field(load, old, new, message):
    assert old in GOOD
    with pytest.raises(ExpectationError, match=message) as caught:
        load(GOOD.replace(old, new, 1))
    assert re.search(r"mlx_lm\.toml: ", str(caught.value))
    assert "\n" not in str(caught.value)


def test_a_plugins_folder_is_read_beside_the_first(tmp_path):
    own, plugins = tmp_path / "own", tmp_path / "plugins"
    for folder, text in ((own, GOOD), (plugins, GOOD.replace("lost-state", "engine-state"))):
        folder.mkdir()
        (folder / "mlx_lm.toml").write_text(text.partition("[[unsupported]]")[0])
    behind = 'behind = ["lost-state"]\nversions'
    file = plugins / "mlx_lm.toml"
    file.write_text(file.read_text().replace("versions", behind))
    found = load_expectations(own, [plugins])
    assert [entry.id for entry in found.defects] == ["lost-state", "engine-state"]
    assert found.defects[1].hidden_in == {"lost-state": ("plamo2",)}


def test_a_plugins_entry_may_not_have_the_name_of_another(tmp_path):
    (tmp_path / "mlx_lm.toml").write_text(GOOD)
    with pytest.raises(ExpectationError, match="field 'id' is used 2 times"):
        load_expectations(tmp_path, [tmp_path])


def test_a_release_in_which_an_entry_was_seen_counts_as_named(tmp_path):
    (tmp_path / "mlx_lm.toml").write_text(GOOD)
    (tmp_path / SHOWN).write_text('{"mlx-lm": {"0.33.0": ["lost-state"], "0.33.1": []}}')
    (entry,) = load_expectations(tmp_path).defects
    assert entry.also_in == ("0.33.0",)
    assert [entry.in_release(v) for v in ("0.32.2", "0.33.0", "0.33.1")] == [True, True, False]
    assert entry.released({"mlx-lm": "0.33.0"})


def test_a_malformed_record_of_releases_is_one_sentence(tmp_path):
    (tmp_path / SHOWN).write_text('{"mlx-lm": ["0.33.0"]}')
    with pytest.raises(ExpectationError, match=r"releases\.json: "):
        load_expectations(tmp_path)
