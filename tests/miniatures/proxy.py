"""Stands between a client and a server, and spoils what the server sends."""

import contextlib
import socket
import struct
import threading
import time


class Proxy:
    """Passes bytes on as they are; ``with`` runs it. A subclass changes what comes back.

    Only connections that ask for a stream are spoiled, so that a look afterwards is right.
    """

    def __init__(self, url):
        host, _, port = url.removeprefix("http://").partition(":")
        self.target = (host, int(port))
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.spoiled = 0

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.socket.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.socket.accept()
                threading.Thread(target=self.carry, args=(client,), daemon=True).start()

    def carry(self, client):
        with client, socket.create_connection(self.target) as server:
            asked = []
            threading.Thread(target=self.up, args=(client, server, asked), daemon=True).start()
            with contextlib.suppress(OSError):
                seen = b""
                while data := server.recv(65536):
                    stream = any(b'"stream":true' in part.replace(b" ", b"") for part in asked)
                    passed = self.down(seen, data) if stream else data
                    seen += data
                    if passed is None:
                        self.spoiled += 1
                        break
                    self.spoiled += passed != data
                    client.sendall(passed)
                # Only this ends a connection that another thread reads.
                client.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def up(client, server, asked):
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                asked.append(data)
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def down(self, seen, data):
        """What is passed on of ``data``, which comes after ``seen``; ``None``: nothing more."""
        return data


class Cuts(Proxy):
    """The connection closes in the middle of a stream."""

    def down(self, seen, data):
        return None if seen.count(b"data:") > 4 else data


class CutsAtOnce(Proxy):
    """The connection closes before anything came back."""

    def down(self, seen, data):
        return None


class Resets(Proxy):
    """The first connection beside another question's is reset before anything came back."""

    most = 1

    def __init__(self, url):
        super().__init__(url)
        self.lock, self.open = threading.Lock(), 0

    def carry(self, client):
        if client.recv(4, socket.MSG_PEEK) != b"POST":
            super().carry(client)
            return
        with self.lock:
            resets = self.open > 0 and self.spoiled < self.most
            self.spoiled += resets
            self.open += not resets
        if resets:
            client.recv(65536)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            return
        super().carry(client)
        with self.lock:
            self.open -= 1


class ResetsThree(Resets):
    most = 3


class Garbles(Proxy):
    """Some letters of a stream's JSON are others."""

    def down(self, seen, data):
        return data.replace(b'"choices"', b'"ch\xff?ces') if seen.count(b"data:") > 2 else data


class GarblesStatus(Proxy):
    """The first line of an answer is no HTTP."""

    def down(self, seen, data):
        return data if seen else b"\x16\x03" + data


class Delays(Proxy):
    """What comes is held back a while."""

    def down(self, seen, data):
        if seen.count(b"data:") in (3, 4):
            time.sleep(0.5)
        return data


class Stops(Proxy):
    """After a few pieces nothing is passed on, and nothing is closed."""

    def down(self, seen, data):
        if seen.count(b"data:") > 4:
            time.sleep(60)
        return data


class SaysHtml(Proxy):
    """A page comes in place of a stream."""

    def down(self, seen, data):
        page = b"<html>gateway</html>"
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
        head += b"Content-Length: %d\r\n\r\n"
        return b"" if seen else head % len(page) + page
