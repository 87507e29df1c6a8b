"""How a token is chosen, as plain data: samplers and logits processors."""

from __future__ import annotations

from typing import Any

import msgspec


class Sampler(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to choose a token: a ``kind`` that the library plugin defines, and its arguments."""

    kind: str
    args: dict[str, Any] = {}


class Processor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A logits processor: a ``kind`` that the library plugin defines, and its arguments."""

    kind: str
    args: dict[str, Any] = {}
