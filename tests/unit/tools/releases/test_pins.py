"""Releases as they are written, and what is installed beside them."""

import pytest

from conformance.core.errors import ReleaseError
from conformance.tools.releases.pins import Release, parse, parse_pins, pins_of, requirement


def test_releases_come_from_the_oldest_to_the_newest():
    assert [str(r) for r in parse(["mlx-lm==0.32.10,0.32.9", "mlx-lm==0.31.2"])] == [
        "mlx-lm 0.31.2",
        "mlx-lm 0.32.9",
        "mlx-lm 0.32.10",
    ]


def test_a_library_alone_stands_for_all_with_pins():
    assert [r.version for r in parse(["mlx-vlm"])] == ["0.4.4", "0.5.0", "0.6.4", "0.7.8", "0.7.10"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mlx==0.31.2", "'mlx' is no library whose releases can be compared"),
        ("mlx-lm==0.31.0", "older than 0.31.1"),
        ("mlx-lm==new", "'new' is no version"),
        ("mlx-lm==", "mlx-lm 0.31.1"),
    ],
)
def test_a_wrong_name_is_one_sentence(text, message):
    if text.endswith("=="):  # no version is as a library alone
        assert str(parse([text])[0]) == message
        return
    with pytest.raises(ReleaseError, match=message):
        parse([text])


def test_a_release_between_two_takes_the_pins_of_the_older():
    pins = pins_of(Release("mlx-vlm", "0.6.9"), {})
    assert pins == {
        "mlx-vlm": "0.6.9",
        "mlx": "0.31.2",
        "transformers": "5.12.1",
        "mlx-lm": "0.31.3",
    }


def test_torchvision_is_installed_where_a_processor_wants_it_and_nowhere_else():
    wants = {r.version for r in parse(["mlx-vlm", "mlx-lm"]) if "torchvision" in pins_of(r, {})}
    assert wants == {"0.4.4"}


def test_a_given_pin_replaces_ours():
    pins = pins_of(Release("mlx-lm", "0.32.2"), parse_pins(["mlx==0.40.0", "torch==2.0"]))
    assert (pins["mlx"], pins["torch"]) == ("0.40.0", "2.0")


@pytest.mark.parametrize("text", ["mlx", "==1", "mlx=="])
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
