"""What a server answers does no harm here: size, compression, redirects, the environment."""

import asyncio
import gzip
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from conformance.core import http_clients
from conformance.core.http_clients import RefusedAnswerError, async_client, client, get

ROOT = Path(__file__).parents[3]
PARTS = ("conformance", "ci", "engines")
MOST = 4 * 2**20
PIECE = b"x" * 2**16


class Handler(BaseHTTPRequestHandler):
    """Answers as the path says; ``seen`` has each request's path and headers."""

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.path, dict(self.headers)))
        how = self.path.strip("/")
        self.send_response(307 if how == "leads" else 200)
        if how == "leads":
            self.send_header("Location", "http://127.0.0.2:9/stolen")
        if how == "compressed":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if how == "compressed":
            self.wfile.write(gzip.compress(PIECE * 1000))
        elif how == "endless":
            try:
                while True:
                    self.wfile.write(PIECE)
            except OSError:
                pass
        elif how == "large":
            self.wfile.write(PIECE * (MOST // len(PIECE)))
        else:
            self.wfile.write(b"well")

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    """A server, while the environment leads elsewhere."""
    monkeypatch.setattr(http_clients, "MOST_BYTES", MOST)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "nowhere")
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file.pem")
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.seen = []
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    made.url = f"http://127.0.0.1:{made.server_port}"
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def by_get(url):
    return get(url, 5)


def by_post(url):
    with client(5) as asking:
        return asking.post(url, content=b"prompt")


def by_stream(url):
    with client(5) as asking, asking.stream("POST", url) as found:
        found.read()
        return found


def by_loop(url):
    async def ask():
        async with async_client(5) as asking:
            return await asking.post(url, content=b"prompt")

    return asyncio.run(ask())


def by_stream_of_loop(url):
    async def ask():
        async with async_client(5) as asking, asking.stream("POST", url) as found:
            await found.aread()
            return found

    return asyncio.run(ask())


def test_no_other_module_makes_a_client():
    names = "get|post|request|stream|Client|AsyncClient|HTTPTransport|AsyncHTTPTransport"
    made = re.compile(rf"(httpx2\.({names})|urlopen)\(")
    files = (path for part in PARTS for path in (ROOT / part).rglob("*.py"))
    found = {str(path.relative_to(ROOT)) for path in files if made.search(path.read_text())}
    assert found == {"conformance/core/http_clients.py"}


EACH = pytest.mark.parametrize("ask", [by_get, by_post, by_stream, by_loop, by_stream_of_loop])


@EACH
def test_nothing_of_the_environment_is_used(server, ask):
    assert ask(f"{server.url}/plain").text == "well"
    ((_, headers),) = server.seen
    assert headers["Accept-Encoding"] == "identity"


@EACH
def test_a_redirect_is_not_followed(server, ask):
    assert ask(f"{server.url}/leads").status_code == 307


@EACH
def test_a_compressed_answer_is_refused_in_a_sentence_that_says_that_it_answers(server, ask):
    with pytest.raises(RefusedAnswerError, match=r"it answers, but the answer is compressed \(gz"):
        ask(f"{server.url}/compressed")


@EACH
def test_an_answer_of_as_many_bytes_as_may_be_is_read_and_a_larger_one_is_not(server, ask):
    assert len(ask(f"{server.url}/large").content) == MOST
    with pytest.raises(RefusedAnswerError, match="the answer has more than 4 MiB"):
        ask(f"{server.url}/endless")


def test_the_package_index_is_asked_as_pip_asks_it_but_within_the_bound(server, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with client(5, as_pip=True) as asking:
        assert asking.follow_redirects
        assert asking.trust_env
        with pytest.raises(RefusedAnswerError, match="more than 4 MiB"):
            asking.get(f"{server.url}/endless")
