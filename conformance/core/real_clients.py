"""The clients that a request can be sent with."""

from __future__ import annotations

import enum
import importlib
import importlib.util


class Client(enum.StrEnum):
    """A client of servers; its value is the package that has it, except for ``RAW``."""

    OPENAI = "openai"
    RAW = "raw"  # HTTP/1.1 on a socket, read slowly, as curl does in a pipe
    ANTHROPIC = "anthropic"
    LANGCHAIN = "langchain_openai"

    @property
    def installed(self) -> bool:
        """Whether it can be used here; some are in the extra ``clients``."""
        return self is Client.RAW or importlib.util.find_spec(self.value) is not None

    def load(self) -> None:
        """Import its package; a later import takes no time."""
        if self is not Client.RAW:
            importlib.import_module(self.value)
