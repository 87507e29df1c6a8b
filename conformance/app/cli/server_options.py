"""The options for a server that the user names: its address and the limits on requests."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import httpx2

from conformance.app.cli.options import stacked
from conformance.app.cli.printing import say
from conformance.core import named_server
from conformance.core.errors import ConformanceError
from conformance.core.http_clients import RefusedAnswerError, get

F = TypeVar("F", bound=Callable[..., Any])

_ENGINE = "http"
_MOST = 10_000_000
_SECONDS = 30.0


def server_options(engines_of: Callable[[Mapping[str, Any]], Sequence[str]]) -> Callable[[F], F]:
    """``--url``, ``--remote``, ``--requests``; with them ``--model`` is the server's model name.

    Apply it above ``checkpoint_options``, whose ``--model`` is otherwise a folder.

    Args:
        engines_of: the engines that a command's options name.
    """
    return lambda function: _with_server(function, engines_of)


def _with_server(function: F, engines_of: Callable[[Mapping[str, Any]], Sequence[str]]) -> F:
    @functools.wraps(function)
    def call(
        *args: Any,
        url: str | None,
        remote: bool,
        requests: int | None,
        model: Path | None,
        **more: Any,
    ) -> Any:
        engines = tuple(engines_of(more))
        if url is not None:
            if engines != (_ENGINE,):
                raise ConformanceError(f"--url is about --engine {_ENGINE}, and about no other")
            name = "" if model is None else str(model)
            server = named_server.use(url, model=name, remote=remote, most=requests)
            _reach(server.url)
            model = None
            if server.most is not None:
                say(f"conformance: at most {server.most:,} requests go to {server.url}", err=True)
        elif remote or requests is not None:
            raise ConformanceError("--remote and --requests are about --url")
        elif _ENGINE in engines:
            named_server.named()
        return function(*args, model=model, **more)

    return stacked(
        click.option(
            "--url",
            metavar="URL",
            help="The server that --engine http asks, such as http://127.0.0.1:8080. --model is "
            "then the server's name of its model. Default: the first model that it lists.",
        ),
        click.option("--remote", is_flag=True, help="Allow a server of --url on another machine."),
        click.option(
            "--requests",
            type=click.IntRange(1, _MOST),
            metavar="N",
            help="The most requests to send to the server of --url. Default: "
            f"{named_server.MOST_REQUESTS:,} for another machine, no limit for this machine.",
        ),
    )(cast("F", call))


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
