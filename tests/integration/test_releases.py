"""``conformance releases``: real environments, made without the network of a few tiny wheels."""

import pytest
from stand_in_releases import CASE, command_on_stand_ins

from conformance.core.errors import ReleaseError
from conformance.tools.releases import environments, installers, release_run


@pytest.fixture
def releases(tmp_path, monkeypatch):
    """The command, on a wheelhouse and a stand-in for this project; its result."""
    return command_on_stand_ins(tmp_path, monkeypatch, "releases")


def test_the_table_shows_when_a_defect_was_fixed_and_which_releases_cannot_be_run(
    releases, tmp_path
):
    file, folder = tmp_path / "table.md", tmp_path / "results"
    done = releases(
        "mlx-lm==0.31.2,0.31.3,0.32.0,0.32.1", "--markdown", str(file), "--json", str(folder)
    )
    assert done.exit_code == 0, done.output
    assert "diverged in 0.31.2; right in 0.31.3 - token 3 is 6" in done.output
    assert "mlx-lm 0.32.0 cannot be run: plugin 'mlx_lm' could not be loaded" in done.output
    refusal = done.output.partition("mlx-lm 0.32.1 cannot be installed")[2].partition("\n")[0]
    assert "with mlx-lm 0.32.1, mlx 0.32.2, transformers 5.23.0 of the table: " in refusal
    assert "the index has nothing of mlx-lm 0.32.1" in refusal
    assert "--pin mlx-lm==0.32.1:NAME==VERSION" in refusal
    assert "| llama | X 1/1 | . 0/1 | cannot be run | cannot be run |" in file.read_text()
    assert [path.name for path in sorted(folder.iterdir())] == [
        "mlx-lm-0.31.2.caches.jsonl",
        "mlx-lm-0.31.2.jsonl",
        "mlx-lm-0.31.3.caches.jsonl",
        "mlx-lm-0.31.3.jsonl",
    ]
    # An environment is kept, but nothing of one that could not be made.
    kept = sorted(path.name for path in (tmp_path / "cache").iterdir())
    assert [name.rpartition("-")[0] for name in kept] == [
        "mlx-lm-0.31.2",
        "mlx-lm-0.31.3",
        "mlx-lm-0.32.0",
    ]


def test_a_kept_environment_is_used_again(releases, monkeypatch):
    first = releases("mlx-lm==0.31.2")
    assert first.exit_code == 0, first.output
    monkeypatch.setattr(environments, "install", pytest.fail)
    done = releases("mlx-lm==0.31.2")
    assert "X 1/1" in done.output


@pytest.mark.parametrize(("engine", "there"), [("mlx_lm_server", True), ("mlx_lm*", False)])
def test_a_server_is_there_in_a_release_where_it_is_named(releases, monkeypatch, engine, there):
    named, unpack = [], environments.unpack

    def noted(folder, plugins):
        named.extend(plugins)
        return unpack(folder, plugins)

    monkeypatch.setattr(environments, "unpack", noted)
    releases("mlx-lm==0.31.3", "--engine", engine)
    assert ("mlx_lm_server" in named) == there
    assert "mlx_lm" in named


def test_a_release_with_results_is_not_run_again(releases, tmp_path, monkeypatch):
    folder = ("--json", str(tmp_path / "results"), "--resume")
    assert releases("mlx-lm==0.31.2", *folder).exit_code == 0
    monkeypatch.setattr(release_run, "prepare", _refused)
    done = releases("mlx-lm==0.31.2,0.31.3", *folder)
    assert "mlx-lm 0.31.2: 1 cases, 1 cache classes, from " in done.output
    assert "mlx-lm 0.31.3 asked for" in done.output
    assert "X 1/1" in done.output


def _refused(release, *_, **__):
    raise ReleaseError(f"{release} asked for")


def test_bisection_names_the_first_good_release(releases):
    done = releases("mlx-lm==0.31.1,0.31.2,0.31.3,0.32.0", "--bisect", CASE)
    assert f"{CASE}: the first good release is mlx-lm 0.31.3 (wrong in 0.31.2; 4" in done.output


def test_cache_classes_are_compared_by_what_they_have_and_what_differs(releases):
    done = releases("mlx-lm==0.31.1,0.31.2,0.31.3", "--caches", "only")
    assert done.exit_code == 0, done.output
    assert (
        "mlx_lm.BatchKVCache prepare: not in 0.31.1; not in 0.31.2; is there in 0.31.3"
    ) in done.output
    assert (
        "mlx_lm.BatchKVCache after merge: differs in 0.31.1; not in 0.31.2; not in 0.31.3 - "
        "contents: row 1"
    ) in done.output


def test_a_release_whose_time_is_over_keeps_what_it_has(releases):
    options = ("--family", "hangs", "--timeout", "8", "--caches", "no")
    done = releases("mlx-lm==0.31.2", *options)
    assert done.exit_code == 0, done.output
    assert "X 1/1" in done.output
    assert "ended after 1 cases: --timeout: its 8 seconds were over" in done.output


def test_results_that_are_whole_when_the_time_is_over_are_used(releases):
    options = ("--family", "lingers", "--timeout", "8", "--caches", "no")
    done = releases("mlx-lm==0.31.2", *options)
    assert done.exit_code == 0, done.output
    assert "X 1/1" in done.output
    assert "cannot be run" not in done.output
    assert "seconds were over" not in done.output


def test_what_is_kept_is_listed_with_its_size_and_deleted(releases, tmp_path):
    assert releases("mlx-lm==0.31.3", "--caches", "no").exit_code == 0
    stranger = tmp_path / "cache" / "notes.txt"
    stranger.write_text("not ours")
    done = releases("--clean")
    assert done.exit_code == 0, done.output
    assert " MB  mlx-lm-0.31.3-" in done.output
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["notes.txt"]


def test_a_pin_of_one_release_is_not_one_of_the_others(releases):
    done = releases("mlx-lm==0.31.2,0.31.3", "--pin", "mlx-lm==0.31.3:mlx==9.9")
    assert "X 1/1" in done.output
    assert "mlx-lm 0.31.3 cannot be installed with mlx-lm 0.31.3, mlx 9.9, " in done.output


def test_a_release_that_a_signal_ends_names_the_signal(releases):
    done = releases("mlx-lm==0.31.1,0.31.3", "--family", "killed", "--caches", "no")
    assert "mlx-lm 0.31.1 cannot be run: it was ended by SIGSEGV; with --jobs 2" in done.output


def test_without_uv_an_environment_is_made_by_pip(releases, monkeypatch):
    monkeypatch.setattr(installers, "find_uv", lambda: None)
    done = releases("mlx-lm==0.31.3")
    assert ". 0/1" in done.output, done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mlx-lm==0.20.0",), "older than 0.28.0"),
        (("mlx-lm==0.31.3", "--pin", "mlx"), "write NAME==VERSION"),
        (("mlx-lm==0.31.3", "--bisect", "llama"), "is not a case id"),
        (("mlx-lm==0.31.3", "--resume"), "--resume needs --json DIR"),
        ((), "name releases, for example"),
        (("mlx-lm==0.32.1",), "no release could be run; mlx-lm 0.32.1: "),
        (("mlx-lm==0.32.1", "--bisect", CASE), "no release could be run; mlx-lm 0.32.1: "),
    ],
)
def test_a_mistake_is_one_sentence(releases, arguments, message):
    done = releases(*arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert "Traceback" not in done.output
