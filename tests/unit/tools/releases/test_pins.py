"""Releases as they are written, and what is installed beside them."""

import json
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from conformance.core.errors import ReleaseError
from conformance.tools.releases import installers, pins
from conformance.tools.releases.pins import (
    Release,
    choices,
    known_pins,
    parse,
    parse_pins,
    requirement,
)


def test_releases_come_from_the_oldest_to_the_newest():
    assert [str(r) for r in parse(["mlx-lm==0.32.10,0.32.9", "mlx-lm==0.31.2"])] == [
        "mlx-lm 0.31.2",
        "mlx-lm 0.32.9",
        "mlx-lm 0.32.10",
    ]


def test_a_library_alone_stands_for_all_that_are_known():
    versions = [r.version for r in parse(["mlx-vlm"])]
    assert (versions[0], versions[-1]) == ("0.4.4", "0.7.10")
    assert len(versions) == 30
    assert len(parse(["mlx-lm"])) == 19


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mlx==0.31.2", "'mlx' is no library whose releases can be compared"),
        ("mlx-lm==0.27.1", "older than 0.28.0"),
        ("mlx-lm==new", "'new' is no version"),
        ("mlx-lm==", "mlx-lm 0.28.0"),
    ],
)
def test_a_wrong_name_is_one_sentence(text, message):
    if text.endswith("=="):  # no version is as a library alone
        assert str(parse([text])[0]) == message
        return
    with pytest.raises(ReleaseError, match=message):
        parse([text])


def test_each_known_release_has_its_own_mlx_and_transformers():
    for release in parse(["mlx-lm", "mlx-vlm"]):
        assert {"mlx", "transformers", "mlx-lm", release.library} <= known_pins(release).keys()


def test_a_release_that_is_not_in_the_table_has_no_known_pins():
    assert known_pins(Release("mlx-vlm", "0.6.11")) is None


def test_torchvision_is_installed_where_a_processor_wants_it_and_nowhere_else():
    wants = {r.version for r in parse(["mlx-vlm", "mlx-lm"]) if "torchvision" in known_pins(r)}
    assert wants == {"0.4.4"}


def test_a_pin_is_for_all_releases_or_for_one():
    pins = parse_pins(["mlx==0.40.0", "mlx-lm==0.32.2:mlx==0.41.0", "mlx-lm==0.32.2:torch==2.0"])
    assert pins.beside(Release("mlx-lm", "0.32.2")) == {"mlx": "0.41.0", "torch": "2.0"}
    assert pins.beside(Release("mlx-lm", "0.32.1")) == {"mlx": "0.40.0"}


@pytest.mark.parametrize("text", ["mlx", "==1", "mlx==", "mlx-lm:mlx==1", ":mlx==1"])
def test_a_malformed_pin_is_refused(text):
    with pytest.raises(ReleaseError, match="NAME==VERSION"):
        parse_pins([text])


@pytest.mark.parametrize(
    ("system", "wanted"), [("linux", "mlx[cpu]==0.31.2"), ("darwin", "mlx==0.31.2")]
)
def test_on_linux_mlx_comes_with_its_part_for_cpus(monkeypatch, system, wanted):
    monkeypatch.setattr("sys.platform", system)
    assert requirement("mlx", "0.31.2") == wanted
    assert requirement("mlx-lm", "0.31.2") == "mlx-lm==0.31.2"
    assert requirement("mlx") == wanted.partition("=")[0]


DAY = datetime(2026, 8, 1, tzinfo=UTC)
FOUND = {"mlx-vlm": "0.6.11", "mlx": "0.32.0", "transformers": "5.14.1", "mlx-lm": "0.31.3"}


@pytest.fixture
def asked(monkeypatch):
    calls = []

    def solve(wanted, before):
        calls.append((tuple(wanted), before))
        return {**FOUND, "numpy": "2.4.6"}

    monkeypatch.setattr(pins, "uploaded", lambda release: DAY)
    monkeypatch.setattr(installers, "solve", solve)
    return calls


def test_the_resolver_is_asked_as_of_the_release_once_and_only_what_matters_is_held(
    asked, tmp_path
):
    release = Release("mlx-vlm", "0.6.11")
    for _ in range(2):
        assert list(choices(release, {}, tmp_path)) == [("the resolver", FOUND)]
    ((wanted, before),) = asked
    assert wanted[0] == "mlx-vlm==0.6.11"
    assert {"transformers", "mlx-lm"} <= set(wanted)
    assert before == DAY


def test_the_table_comes_first_and_given_versions_replace_both(asked, tmp_path):
    release = Release("mlx-vlm", "0.6.10")
    (first, known), (second, solved) = choices(release, {"mlx": "9"}, tmp_path)
    assert (first, second) == ("the table", "the resolver")
    assert (known["mlx"], known["transformers"]) == ("9", "5.14.1")
    assert solved["mlx"] == "9"


def test_the_resolver_is_not_asked_while_the_table_serves(asked, tmp_path):
    assert next(choices(Release("mlx-lm", "0.28.0"), {}, tmp_path))[0] == "the table"
    assert asked == []


def test_what_the_resolver_says_is_passed_on(monkeypatch, tmp_path):
    def refuse(release):
        raise ReleaseError("no such release")

    monkeypatch.setattr(pins, "uploaded", refuse)
    with pytest.raises(ReleaseError, match="no such release"):
        list(choices(Release("mlx-vlm", "0.6.11"), {}, tmp_path))


# When a release was uploaded, by the index's own words --------------------------------------------

RELEASE = Release("mlx-lm", "0.31.3")
INDEX = pins.index


@pytest.fixture(autouse=True)
def somewhere(monkeypatch):
    monkeypatch.setattr(pins, "index", lambda: "http://localhost/simple")


@pytest.fixture
def answer(monkeypatch):
    def say(text, status=200):
        found = httpx2.Response(status, text=text)
        monkeypatch.setattr(httpx2.Client, "get", lambda client, url, **_: found)

    return say


def listed(*files):
    return json.dumps({"files": [{"filename": n, "upload-time": t} for n, t in files]})


def test_it_is_the_time_of_the_last_file_and_a_little_more(answer):
    answer(
        listed(
            ("mlx_lm-0.31.3-py3-none-any.whl", "2026-04-22T07:37:00.5Z"),
            ("mlx_lm-0.31.3.tar.gz", "2026-04-22T07:39:00Z"),
            ("mlx_lm-0.32.0-py3-none-any.whl", "2026-06-01T00:00:00Z"),
            ("mlx_lm-0.31.3.exe", "2026-07-01T00:00:00Z"),
        )
    )
    last = datetime(2026, 4, 22, 7, 39, tzinfo=UTC)
    assert last < pins.uploaded(RELEASE) <= last + timedelta(hours=2)


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("", 404, "answers 404: is there such a package"),
        ("<html>", 200, "not JSON"),
        ('{"files": []}', 200, "has no file of release 0.31.3"),
        ('{"files": [{}]}', 200, "without its name or time"),
        ('{"files": [{"filename": "mlx_lm-0.31.3.tar.gz"}]}', 200, "without its name or time"),
    ],
)
def test_what_is_no_answer_is_one_sentence(answer, text, status, message):
    answer(text, status)
    with pytest.raises(ReleaseError, match=message):
        pins.uploaded(RELEASE)


def test_an_index_that_cannot_be_reached_is_one_sentence(monkeypatch):
    def fail(client, url, **_):
        raise httpx2.ConnectError("no network")

    monkeypatch.setattr(httpx2.Client, "get", fail)
    with pytest.raises(ReleaseError, match="cannot be read: no network"):
        pins.uploaded(RELEASE)


@pytest.mark.parametrize(
    ("printed", "wanted"),
    [
        (
            {"config": "global.index{}url='http://localhost:2/simple/'\n"},
            "http://localhost:2/simple",
        ),
        (
            {
                "config": "global.index{0}url='http://a/simple'\n:env:.index{0}url='http://b/simple'\n"
            },
            "http://b/simple",
        ),
        (
            {"install": "Base (default\n   http://localhost:3/simple). This"},
            "http://localhost:3/simple",
        ),
        (
            {
                "config": "global.extra-index{}url='http://c/simple'\n",
                "install": "(default http://d/simple)",
            },
            "http://d/simple",
        ),
    ],
)
def test_the_index_is_that_of_pip(monkeypatch, printed, wanted):
    monkeypatch.setattr(pins, "_pip", lambda verb, *_: printed.get(verb, "").format("-"))
    assert INDEX.__wrapped__() == wanted


def test_without_pip_it_is_one_sentence(monkeypatch):
    monkeypatch.setattr(pins, "_pip", lambda *_: "")
    with pytest.raises(ReleaseError, match="is not installed here"):
        INDEX.__wrapped__()
