"""Answers that only a server can give: asked for while no other request is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.schedule import Request
from conformance.plugins.servers.asked_server import AskedServer
from conformance.plugins.servers.fields import fits_schema


def only_the_server(request: Request) -> bool:
    """Whether the right answer differs from the single stream of the model itself.

    The answer may need random numbers, a grammar, another model or an adapter.
    """
    asked = request.asked
    further = asked is not None and (asked.schema or bool(asked.other or asked.adapter))
    return request.sampler is not None or further


def ask_alone(
    kind: Callable[[Any, EngineOptions], AskedServer],
    model: Any,
    request: Request,
    options: EngineOptions,
) -> tuple[int, ...]:
    """The tokens of the answer.

    Raises:
        Unsupported: a request with a schema is refused, or its answer does not fit the schema.
        ServerFailedError: another request gets no answer.
    """
    engine = kind(model, msgspec.structs.replace(options, busy=False))
    schema = request.asked is not None and request.asked.schema
    try:
        came = engine.asking.ask(engine.question(request, streamed=False), engine.patience)
        if came.error and schema:
            raise Unsupported(f"response_format is refused: {came.error}; not supported")
        if came.error:
            raise engine.failed(f"request {request.request_id!r}: {came.error}")
        if schema and not fits_schema(came.answer.text):
            raise Unsupported(
                f"response_format is ignored: {came.answer.text[:60]!r} is not of the schema; not "
                "supported"
            )
        return tuple(token for token, _ in engine.whole_answer(request, came.answer))
    finally:
        engine.close()
