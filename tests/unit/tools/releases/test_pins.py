"""Releases as they are written, and what is installed beside them."""

import pytest

from conformance.core.errors import ReleaseError
from conformance.tools.releases.pins import Release, known_pins, parse, parse_pins, requirement


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
