"""Sends all output of model code to stderr, as plain text, while a command runs the model."""

from __future__ import annotations

import codecs
import contextlib
import faulthandler
import io
import os
import sys
import tempfile
import threading
from collections.abc import Iterator

from conformance.core.plain_text import plain

_STDOUT, _STDERR = 1, 2
_LOOK_SECONDS = 0.1
_PIECE = 2**16  # bytes


@contextlib.contextmanager
def plain_output() -> Iterator[None]:
    """Context in which all output, however it is written, goes to stderr without control codes.

    The command's result on stdout stays separate. A crash's traceback goes to stderr unchanged.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        kept = {number: os.dup(number) for number in (_STDOUT, _STDERR)}
        if traced := faulthandler.is_enabled():
            faulthandler.enable(kept[_STDERR])
        relay = _Relay(file.fileno(), kept[_STDERR])
        for number in kept:
            os.dup2(file.fileno(), number)
        relay.start()
        raw = io.FileIO(file.fileno(), "w", closefd=False)
        text = io.TextIOWrapper(raw, "utf-8", errors="replace", write_through=True)
        try:
            # If the streams are not files, as under pytest, the descriptors are not theirs.
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, own in kept.items():
                os.dup2(own, number)
            relay.finish()
            if traced:
                faulthandler.enable(_STDERR)
            for own in kept.values():
                os.close(own)


class _Relay(threading.Thread):
    """Passes on, as plain text, what is written to a temporary file.

    A pipe would deadlock once it is full, if its writer holds the interpreter's lock.
    """

    def __init__(self, source: int, target: int) -> None:
        super().__init__(name="conformance-output", daemon=True)
        self._source, self._target = source, target
        self._place = 0
        self._over = threading.Event()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def run(self) -> None:
        """Pass on text until ``finish`` is called."""
        while not self._over.wait(_LOOK_SECONDS):
            self._pass_on()

    def finish(self) -> None:
        """Pass on the rest."""
        self._over.set()
        self.join()
        self._pass_on()

    def _pass_on(self) -> None:
        while data := os.pread(self._source, _PIECE, self._place):
            self._place += len(data)
            text = plain(self._decode(data).replace("\r\n", "\n"))
            with contextlib.suppress(OSError):  # nobody reads it any more
                os.write(self._target, text.encode())
