"""``conformance show``: what is installed, in all and by name."""

import json
from pathlib import Path

import pytest

from conformance.app.cli.show_lists import FEW, print_lists

TOY = Path(__file__).parents[2] / "toy"


def test_families_with_modules_that_are_excluded_and_uncovered(conformance):
    done = conformance("show", "families", TOY_MODULES="novel")
    assert done.code == 0, done
    lines = [line.split() for line in done.out.splitlines()]
    assert ["calm", "toy", "calm", "text", "8", "toy", "(3)"] in lines
    assert ["toy", "helper", "no", "model"] in lines
    assert ["toy", "novel"] in lines


def test_families_as_json_say_what_applies(conformance):
    listing = json.loads(conformance("show", "families", "--json").out)
    calm = next(row for row in listing["families"] if row["family"] == "calm")
    assert calm["engines"] == {"toy": ["repeat", "ragged", "staggered"]}
    assert calm["left_out"] == {"toy": {}}
    assert calm["window"] == 8
    assert listing["excluded"] == [{"library": "toy", "module": "helper", "reason": "no model"}]
    assert listing["uncovered"] == []


def test_families_by_name_and_by_cache(conformance):
    def listed(*arguments):
        done = conformance("show", "families", *arguments, "--json")
        assert done.code == 0, done
        return next(iter(json.loads(done.out).values()))

    assert [row["family"] for row in listed("--family", "c*")] == ["calm", "clumsy"]
    loaded = listed("--cache", "Toy*", "--family", "calm")
    assert [(row["family"], row["caches"]) for row in loaded] == [("calm", "ToyCache")]
    none = conformance("show", "families", "--cache", "ToyCash", "--family", "calm")
    assert none.code == 2
    assert "no class of caches matches 'ToyCash'; did you mean ToyCache?" in none.err
    assert "--cache goes with" in conformance("show", "engines", "--cache", "T*").err


def test_many_families_are_listed_by_name(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rows = [{"library": "toy", "family": f"family_{n}"} for n in range(FEW + 1)]
    print_lists({"families": rows, "excluded": [{}], "uncovered": []})
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == f"toy: {FEW + 1} families"
    assert len(lines) < 12
    names = lines[: next(n for n, line in enumerate(lines) if line.startswith("1 modules"))]
    assert sorted(" ".join(names).split()) == sorted(row["family"] for row in rows)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("engines", ["toy", "toy", "9", "repeat, ragged, staggered"]),
        ("scenarios", ["ragged", "the ragged ingredient", "toy"]),
        ("plugins", ["toy", "toy 1.2.3", "abacus"]),
        ("faults", ["toy"]),
    ],
)
def test_the_others(conformance, what, expected):
    done = conformance("show", what)
    assert any(all(part in line for part in expected) for line in done.out.splitlines()), done
    assert json.loads(conformance("show", what, "--json").out)[what]


def test_families_of_an_engine_are_loaded_and_described(conformance):
    listing = json.loads(conformance("show", "families", "--engine", "toy", "--json").out)
    calm = next(row for row in listing["families loaded"] if row["family"] == "calm")
    assert calm["caches"] == "ToyCache"
    assert calm["scenarios"] == ["repeat", "ragged", "staggered"]
    assert listing["left out"] == []
    assert listing["excluded"] == [{"module": "helper", "reason": "no model"}]


def test_only_families_are_listed_by_engine(conformance):
    done = conformance("show", "plugins", "--engine", "toy")
    assert done.code == 2
    assert "--engine goes with `conformance show families` or `coverage` only" in done.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("wishes",),
            "show wishes: name families, engines, scenarios, faults, plugins, coverage, defects",
        ),
        (("server-backlog",), "that is a known defect; show defects server-backlog"),
        (("--json",), "--json: name what to show"),
        (("families", "--no-expectations"), "go with a CASE_ID"),
        (("--engine", "toy"), "--engine goes with"),
        (("toy/calm/ragged/float32/0", "--engine", "toy"), "--engine goes with"),
    ],
)
def test_what_else_is_refused(conformance, arguments, sentence):
    done = conformance("show", *arguments)
    assert done.code == 2
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1


def test_without_an_argument_it_says_what_is_installed_and_what_to_type_next(conformance):
    done = conformance("show")
    assert done.code == 0, done
    counts = [line.split()[:2] for line in done.out.split("\n\n")[0].splitlines()]
    assert ["1", "engines"] in counts
    assert ["3", "scenarios"] in counts
    assert ["1", "plugins"] in counts
    assert any(name == "families" and int(count) > 1 for count, name in counts)
    assert "conformance show families|engines|scenarios|faults|plugins" in done.out
    assert len(done.out.splitlines()) < 24
    assert max(map(len, done.out.splitlines())) < 80


def test_a_broken_plugin_is_one_sentence(conformance, tmp_path):
    broken = tmp_path / "toy_plugin.py"
    broken.write_text("raise ImportError('the toy is in pieces')")
    done = conformance("show", "families", PYTHONPATH=f"{tmp_path}:{TOY}")
    assert done.code == 0
    assert done.err == (
        "plugin 'toy' is left out: (toy_plugin) could not be loaded: "
        "ImportError: the toy is in pieces\n"
    )


def test_the_plugins_that_come_with_the_package_fit_on_one_screen(start):
    """Of 100 columns, as a terminal would have them."""
    wide = "import conformance.app.cli.show_lists as lists; lists._WIDE = 100; "
    call = "from conformance.app.cli import main; main(['show', 'plugins'])"
    done = start("-c", wide + call, PYTHONPATH="")
    assert done.code == 0, done
    assert "mlx_vlm" in done.out
    assert len(done.out.splitlines()) <= 24
    assert max(map(len, done.out.splitlines())) <= 100


def test_coverage_without_an_adapter_that_says_what_is_accepted(conformance):
    done = conformance("show", "coverage", "--engine", "toy")
    assert done.code != 0
    assert "toy: no adapter of these says what is accepted" in done.err


def test_the_coverage_of_an_adapter_has_counts_by_place(conformance, tmp_path):
    (tmp_path / "counting.py").write_text(
        "from toy_plugin import ToyEngine\n"
        "from conformance import hookimpl\n"
        "class Mine(ToyEngine):\n"
        "    name = 'mine'\n"
        "    @classmethod\n"
        "    def accepted(cls):\n"
        "        return {'insert': ('prompts', 'seed')}\n"
        "@hookimpl\n"
        "def conformance_engines():\n"
        "    return [Mine]\n"
    )
    done = conformance("show", "coverage", "-p", "counting", "--engine", "mine", "--json")
    assert done.code == 0, done
    found = json.loads(done.out)
    counts = {"set": 0, "reviewed": 0, "gap": 2}
    assert found["places"] == [{"engine": "mine", "place": "insert", **counts}]
    assert [row["field"] for row in found["fields gap"]] == ["prompts", "seed"]
    table = conformance("show", "coverage", "-p", "counting", "--engine", "mine").out
    assert ["mine", "insert", "seed"] in [line.split() for line in table.splitlines()]
