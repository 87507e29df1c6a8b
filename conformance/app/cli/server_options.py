"""Options that name a server for the engine ``http``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import httpx2

from conformance.app.cli.printing import say
from conformance.core import named_server
from conformance.core.errors import ConformanceError
from conformance.core.http_clients import RefusedAnswerError, get

F = TypeVar("F", bound=Callable[..., Any])

_ENGINE = "http"
_MOST = 10_000_000
_SECONDS = 30.0


def server_options(function: F) -> F:
    """``--url``, ``--remote``, ``--requests``; with them ``--model`` is the server's model name.

    Apply it above ``checkpoint_options``, whose ``--model`` is otherwise a folder.
    """

    @functools.wraps(function)
    def call(
        *args: Any,
        url: str | None,
        remote: bool,
        requests: int | None,
        engines: tuple[str, ...],
        model: Path | None,
        **more: Any,
    ) -> Any:
        if url is not None:
            if engines != (_ENGINE,):
                raise ConformanceError(f"--url is about --engine {_ENGINE}, and about no other")
            name = "" if model is None else str(model)
            server = named_server.use(url, model=name, remote=remote, most=requests)
            _reach(server.url)
            model = None
            if server.most is not None:
                say(f"conformance: at most {server.most:,} requests go to {server.url}")
        elif remote or requests is not None:
            raise ConformanceError("--remote and --requests are about --url")
        elif _ENGINE in engines:
            named_server.named()
        return function(*args, engines=engines, model=model, **more)

    made: Any = call
    for option in (
        click.option(
            "--requests",
            type=click.IntRange(1, _MOST),
            metavar="N",
            help="The most requests to send to the server of --url. Default: "
            f"{named_server.MOST_REQUESTS:,} for another machine, no limit for this machine.",
        ),
        click.option("--remote", is_flag=True, help="Allow a server of --url on another machine."),
        click.option(
            "--url",
            metavar="URL",
            help="The server that --engine http asks, such as http://127.0.0.1:8080. --model is "
            "then the server's name of its model. Default: the first model that it lists.",
        ),
    ):
        made = option(made)
    decorated: F = made
    return decorated


def _reach(url: str) -> None:
    """Check that a server answers at this address with a response that can be parsed.

    Raises:
        ConformanceError: no server does.
    """
    try:
        get(f"{url}/v1/models", _SECONDS)
    except RefusedAnswerError as error:
        raise ConformanceError(f"--url: {url}: {error}") from error
    except httpx2.HTTPError as error:
        why = str(error) or type(error).__name__
        raise ConformanceError(
            f"--url: no server answers at {url}: {why}; start it first"
        ) from error
