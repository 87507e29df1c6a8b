"""Of many connections that come at once to mlx_lm.server some are reset.

server.py:1885 takes ThreadingHTTPServer as it is, whose queue of connections that wait to be
accepted holds 5 (socketserver.TCPServer.request_queue_size). Fixed by a class with a longer queue.
The server's own class is asked here, with answers that take a moment, so that no model is needed.
"""

import http.server
import socket
import sys
import threading
import time
from importlib.metadata import version

from mlx_lm import server

CLIENTS = 320


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


def ask(port, begin, found):
    begin.wait()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            found.append(client.recv(4096).endswith(b"ok") or client.recv(64) == b"ok")
    except OSError:
        found.append(False)


def main() -> int:
    kind = server._run_http_server.__defaults__[0]
    queue = kind.request_queue_size
    print(f"mlx-lm {version('mlx-lm')}: {kind.__name__} lets {queue} connections wait")
    served = kind(("127.0.0.1", 0), Handler)
    served.handle_error = lambda *_: None  # a client that gave up before it was answered
    begin, found = threading.Event(), []
    port = served.server_address[1]
    clients = [threading.Thread(target=ask, args=(port, begin, found)) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    begin.set()
    time.sleep(0.5)  # a moment in which nobody accepts, as while a model decodes
    threading.Thread(target=served.serve_forever, daemon=True).start()
    for client in clients:
        client.join()
    served.shutdown()
    print(f"{found.count(True)} of {CLIENTS} clients got an answer")
    return 1 if queue < CLIENTS else 0


if __name__ == "__main__":
    sys.exit(main())
