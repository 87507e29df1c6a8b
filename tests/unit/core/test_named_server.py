"""Which servers may be asked, and how often."""

import pytest

from conformance.core.engine import Capability
from conformance.core.errors import ConformanceError
from conformance.core.named_server import MOST_REQUESTS, OFFERED, NamedServer, named, options, use


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    monkeypatch.setenv("CONFORMANCE_SERVER", "")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.8.0.1"])
def test_servers_of_this_machine_have_no_bound(host):
    assert use(f"http://{host}:80/v1/", model="m") == NamedServer(f"http://{host}:80", "m", None)
    assert named() == NamedServer(f"http://{host}:80", "m", None)


def test_another_machine_needs_leave_and_has_a_bound():
    with pytest.raises(ConformanceError, match="--remote allows it, for at most 1,000"):
        use("https://example.org")
    assert use("https://example.org", remote=True).most == MOST_REQUESTS
    assert use("https://example.org", remote=True, most=5).most == named().most == 5


@pytest.mark.parametrize(
    "url", ["127.0.0.1:80", "ftp://localhost", "http://", "http://a:x", "http://[::1"]
)
def test_what_is_no_url_is_one_sentence(url):
    with pytest.raises(ConformanceError, match=r"--url: .* is no URL"):
        use(url, remote=True)


def test_without_a_url_the_option_is_named():
    with pytest.raises(ConformanceError, match="add --url"):
        named()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, ()),
        ({"model": "a b"}, ("--model", "a b")),
        ({"most": 7}, ("--requests", "7")),
        (
            {"not_offered": ("stop", "models")},
            ("--not-offered", "models,stop"),
        ),
    ],
)
def test_a_rerun_asks_the_same_server_in_the_same_way(given, wanted):
    use("http://127.0.0.1:80", **given)
    assert options() == ("--url", "http://127.0.0.1:80", *wanted)


def test_a_rerun_on_another_machine_has_leave_and_its_bound():
    use("https://example.org", remote=True)
    assert options() == ("--url", "https://example.org", "--remote")
    use("https://example.org", remote=True, most=5)
    assert options() == ("--url", "https://example.org", "--remote", "--requests", "5")


def test_without_a_server_a_rerun_names_none():
    assert options() == ()


def test_what_a_server_may_lack_are_capabilities():
    assert set(OFFERED) <= set(Capability)
