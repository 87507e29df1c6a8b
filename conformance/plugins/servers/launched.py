"""Starts a library's own server on a family's tiny checkpoint, and says how it fared."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.faults.declaration import Injection
from conformance.core.faults.patching import together
from conformance.core.origin import Origin, Other
from conformance.core.schedule import Asked
from conformance.plugins.servers import planting
from conformance.plugins.servers.process import (
    HOST,
    ManagedServer,
    Pool,
    ServerError,
    last_line,
    last_traceback,
    start,
)
from conformance.plugins.servers.served_engine import ServedEngine
from conformance.plugins.servers.spelling import write_pieces
from conformance.plugins.servers.words import end_by, exchange, rename, write_tokenizer
from conformance.scenarios.marker_styles import STYLES

# Requests name models that the server must not load from elsewhere.
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
_NO_FOLDER = str(Path(tempfile.gettempdir()) / "conformance-nothing-was-downloaded")
# For one broken connection, and for all of an engine: hundreds may break at once.
_END_SECONDS, _ALL_ENDS_SECONDS = 1.0, 3.0
# Exceptions of connections whose server no longer generates: none of them is why.
_OF_OTHERS = ("RuntimeError: generation thread",)
_REFUSAL = "The model does not support"  # of mlx-lm, for models that are not divided
# Exceptions for a client's closed connection.
_OF_LEAVING = ("BrokenPipeError", "ConnectionResetError", "asyncio.exceptions.CancelledError")


@functools.cache
def servers() -> Pool:
    """The servers of this process."""
    return Pool()


class LaunchedEngine(ServedEngine):
    """A library's own server, as a user starts it, in a process of its own."""

    health: ClassVar[str] = "/health"
    # Modules that the server imports, without its own module, which is run again for each server.
    imported: ClassVar[tuple[str, ...]] = ()
    # The place of the patch that records the server's steps: module and name.
    counting: ClassVar[str] = ""

    _end_seconds = _ALL_ENDS_SECONDS  # that are left to wait for the end of the process

    def __init__(self, model: Any, options: EngineOptions) -> None:
        self._broken = False
        # Whether requests had effects on the server that outlast them.
        self._changed = False
        self._log_at = 0
        super().__init__(model, options)

    @classmethod
    def of_family(cls, origin: Origin, family: str) -> Other:  # noqa: ARG003
        """The model of another family, in the dtype and with the seed of this one."""
        raise Unsupported("the server does not load other models: not supported")

    @classmethod
    def injected(cls, change: Injection) -> Injection:
        """See ``Engine.injected``: in the server's process, and here for the single stream."""
        if isinstance(change, planting.InServer):
            return change
        return lambda hits: together(change(hits), planting.InServer(change)(hits))

    @classmethod
    @abstractmethod
    def module(cls) -> str:
        """The module that Python runs."""

    @abstractmethod
    def flags(self) -> Sequence[str]:
        """The server's options, without its model and port."""

    def place(self, folder: Path, port: int) -> Sequence[str]:
        """The arguments that say which checkpoint is served, and where."""
        return ["--model", str(folder), "--host", HOST, "--port", str(port)]

    def added(self, folder: Path) -> Mapping[str, Path]:  # noqa: ARG002
        """Further options, each with the folder that ``add`` makes for it."""
        return {}

    def add(self, folder: Path) -> None:
        """Make the folders that options are about, within the checkpoint's folder."""

    def launcher(self) -> Sequence[str]:
        """The command that runs Python, if the server has several processes."""
        return ()

    def environment(self) -> dict[str, str]:
        """Variables that the server reads."""
        return {}

    def dress(self, folder: Path) -> None:
        """Add what a written checkpoint lacks: of mlx-lm, a tokenizer."""
        write_tokenizer(folder, self._origin.family.vocab_size)

    def connect(self) -> str:
        """See ``ServedEngine.connect``: a running server with the same options, or a new one."""
        if self._origin.family.checkpoint is not None:
            raise Unsupported(
                "the words of a real checkpoint are not one token each; start its server, and "
                "name it: --engine http --url"
            )
        self._planted = tuple(planting.wanted())
        try:
            self._server = servers().get(self._key, self._start)
        except ServerError as error:
            if _REFUSAL in str(error):
                raise Unsupported(str(error)) from error
            raise
        self._check_loaded()
        self._log_at = len(self._server.log())
        self._hits_at = planting.hits_of(self._server.folder, len(self._planted))
        return self._server.url

    def close(self) -> None:
        """See ``ServedEngine.close``; not reused if it failed, kept prefixes or was counted.

        Nor if requests have changed it.
        """
        super().close()
        after = planting.hits_of(self._server.folder, len(self._planted))
        for (_, hits), begin, end in zip(self._planted, self._hits_at, after, strict=True):
            hits.count += end - begin
        kept = self._options.prefix_caching is not None or self._options.counted
        if self._broken or self._hung or kept or self._changed:
            servers().discard(self._key)

    def ended(self) -> bool:
        """See ``ServedEngine.ended``."""
        return self._server.code is not None

    def state(self) -> str:
        """How its process ended, or the last traceback in its log since this engine began.

        Tracebacks that follow from another one, or from a client that left, come last.

        Raises:
            Unsupported: the library does not serve this model in this way.
        """
        log = self._server.log()[self._log_at :]
        # A broken connection is noticed before the end of the process at its other end.
        began = time.monotonic()
        code = self._server.code_within(max(0.0, min(_END_SECONDS, self._end_seconds)))
        self._end_seconds -= time.monotonic() - began
        if code is not None:
            return (
                f"the server ended with exit code {code}: {last_traceback(log) or last_line(log)}"
            )
        self._check_loaded()
        return last_traceback(log, aside=(*_OF_LEAVING, *_OF_OTHERS)) or last_traceback(log)

    def _check_loaded(self) -> None:
        """Raise if the library refused the model, whose server's port answers all the same."""
        log = self._server.log()
        if _REFUSAL in log:
            raise Unsupported(last_traceback(log, aside=(*_OF_LEAVING, *_OF_OTHERS)))

    def complaint(self) -> str:
        """See ``ServedEngine.complaint``: complaints about clients that left do not count."""
        return last_traceback(self._server.log()[self._log_at :], aside=_OF_LEAVING)

    def model_name(self, other: int = 0) -> str:
        """The server's name for its model, or for another one, which is then written."""
        if not other:
            return str(self._renamed() if self._options.markers else self._server.folder)
        folder = self._server.folder / f"other{other}"
        if not folder.exists():
            if self._origin.other is None:
                raise Unsupported("there is no other model: not supported")
            folder.mkdir()
            self._origin.other(self._origin.seed + other).write(folder)
            self.dress(folder)
            exchange(folder)
        return str(folder)

    def _of_words(self) -> Path:
        options = self._options
        return self._server.folder / f"of_{options.markers}_{hash(options.words):x}"

    def _renamed(self) -> Path:
        """The folder of the same model with these words, which is written if need be."""
        options, folder = self._options, self._of_words()
        if not folder.exists():
            folder.mkdir()
            for file in self._server.folder.glob("*.safetensors"):
                (folder / file.name).symlink_to(file)
            for pattern in ("*.json", "*.jinja"):
                for file in self._server.folder.glob(pattern):
                    shutil.copy(file, folder)
            rename(folder, options.words, STYLES[options.markers])
            if options.stop:
                end_by(folder, [token for (token,) in options.stop])
        return folder

    def _named(self, asked: Asked | None) -> str:
        """The server's name for the model that a request asks for, which is written if need be."""
        if asked is None or not asked.family:
            return self.model_name(asked.other if asked is not None else 0)
        folder = self._server.folder / f"of_{asked.family}"
        if not folder.exists():
            folder.mkdir()
            self.of_family(self._origin, asked.family).write(folder)
            self.dress(folder)
            exchange(folder)
        return str(folder)

    def memory(self) -> int | None:
        """See ``ServedEngine.memory``."""
        return self._server.memory()

    @property
    def _origin(self) -> Origin:
        origin: Origin = self._given
        return origin

    @property
    def _key(self) -> Hashable:
        origin = self._origin
        made = (
            self._options.adapter,
            self._options.draft_model,
            self._options.prefix_caching,
            self._options.listed,
            # Of a server that reads it in the checkpoint.
            msgspec.json.encode(self._options.sampler),
        )
        files: tuple[object, ...] = (made,)
        if not self._options.markers:  # a model with markers is loaded on request
            files += (self._options.words, self._options.pieces, self._options.stop)
        options = (*self.flags(), *sorted(self.environment().items()), *files)
        places = tuple(self._places())
        return (self.name, origin.family.name, origin.dtype, origin.seed, options, places)

    def _places(self) -> list[str]:
        """The places of the patches for the server's process; counting is last and has no hits."""
        counting = [self.counting] if self._options.counted else []
        return [*(place for place, _ in self._planted), *counting]

    def _start(self) -> ManagedServer:
        def write(folder: Path) -> None:
            self._origin.write(folder)
            self.dress(folder)
            if self._options.markers:
                return
            if self._options.pieces:
                write_pieces(folder, self._options.pieces, self._options.words)
            elif self._options.words:
                rename(folder, self._options.words)
            if self._options.stop:
                ends = [token for (token,) in self._options.stop]
                end_by(folder, ends, named=not self._options.pieces)

        def command(folder: Path, port: int) -> list[str]:
            runs = planting.command(self.module(), folder, self._places())
            self.add(folder)
            given = [*self.flags(), *arguments_of(self.added(folder))]
            return [*self.launcher(), sys.executable, *runs, *self.place(folder, port), *given]

        environment = {**os.environ, **_OFFLINE, **self.environment()}
        if self._options.listed:
            environment["HF_HUB_CACHE"] = _NO_FOLDER
        return start(
            write,
            command,
            environment=environment,
            health=self.health,
            imported=self.imported,
        )


def arguments_of(added: Mapping[str, Path]) -> Iterator[str]:
    """Options and their folders as arguments of a command."""
    for option, place in added.items():
        yield from (option, str(place))
