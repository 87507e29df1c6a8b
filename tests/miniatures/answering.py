"""Servers that answer each request in one way, which is not that of the API."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answers:
    """Answers by ``headers`` and a short text; ``with`` runs it. ``asked`` has each path."""

    status = 200

    def __init__(self):
        self.asked = []
        self.headers = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.answers = self
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.01,)).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


class Handler(BaseHTTPRequestHandler):
    """Answers as its server says."""

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answers = self.server.answers
        answers.asked.append(self.path)
        self.send_response(answers.status)
        for name, value in answers.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"short")

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_):
        pass


class Packs(Answers):
    """Compresses what nobody wants compressed."""

    def __init__(self):
        super().__init__()
        self.headers = {"Content-Encoding": "gzip"}


class Leads(Answers):
    """Sends who asks to another server."""

    status = 307

    def __init__(self, to):
        super().__init__()
        self.headers = {"Location": f"{to}/v1/elsewhere"}
