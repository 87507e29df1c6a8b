"""The options that name a server at a URL: ``--url`` and what belongs to it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import httpx2

from conformance.app.cli.options import stacked
from conformance.app.cli.printing import say
from conformance.core import named_server
from conformance.core.errors import ConformanceError, ModelError
from conformance.core.http_clients import RefusedAnswerError, get, models
from conformance.core.names import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])

_ENGINE = "http"
_MOST = 10_000_000
_SECONDS = 30.0


def server_options(engines_of: Callable[[Mapping[str, Any]], tuple[str, ...]]) -> Callable[[F], F]:
    """``--url`` and its options; with them ``--model`` is the server's name of its model.

    Apply it above ``checkpoint_options``, whose ``--model`` is otherwise a folder.

    Args:
        engines_of: the engines that the command's arguments select.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(
            *args: Any,
            url: str | None,
            remote: bool,
            requests: int | None,
            not_offered: tuple[str, ...],
            model: Path | None,
            **more: Any,
        ) -> Any:
            engines = engines_of(more)
            if url is not None:
                if engines != (_ENGINE,):
                    raise ConformanceError(f"--url is about --engine {_ENGINE}, and about no other")
                _name(url, model, remote=remote, most=requests, not_offered=not_offered)
                model = None
            elif remote or requests is not None or not_offered:
                raise ConformanceError("--remote, --requests and --not-offered are about --url")
            elif _ENGINE in engines:
                named_server.named()
            return function(*args, model=model, **more)

        return _OPTIONS(cast("F", call))

    return decorate


class _Features(click.ParamType[tuple[str, ...]]):
    """Features by name, separated by commas."""

    name = "features"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The names."""
        if isinstance(value, tuple):
            return value
        names = [name.strip() for name in str(value).split(",")]
        for name in names:
            if name not in named_server.OFFERED:
                listed = ", ".join(named_server.OFFERED)
                near = did_you_mean(name, named_server.OFFERED)
                self.fail(f"{name!r} is none of {listed}{near}", param, ctx)
        return tuple(names)


_OPTIONS = stacked(
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
    click.option(
        "--not-offered",
        type=_Features(),
        default=(),
        metavar="FEATURE,...",
        help="Features that the server of --url does not have, where asking can't show that: "
        f"{', '.join(named_server.OFFERED)}. Their cases are not run, and do not fail.",
    ),
)


def _name(
    url: str,
    model: Path | None,
    *,
    remote: bool,
    most: int | None,
    not_offered: tuple[str, ...],
) -> None:
    """Name the server, by its first model if no other is given, once it answers."""
    given = "" if model is None else str(model)
    server = named_server.use(url, model=given, remote=remote, most=most, not_offered=not_offered)
    _reach(server.url)
    if not given:
        named_server.use(
            url, model=_first(server.url), remote=remote, most=most, not_offered=not_offered
        )
    if server.most is not None:
        say(f"conformance: at most {server.most:,} requests go to {server.url}", err=True)


def _first(url: str) -> str:
    """The first model that the server lists."""
    try:
        return models(url)[0]
    except ModelError as error:
        raise ConformanceError(f"--url: {error}") from error


def _reach(url: str) -> None:
    """Check that a server answers at this address with a response that can be parsed."""
    try:
        get(f"{url}/v1/models", _SECONDS)
    except RefusedAnswerError as error:
        raise ConformanceError(f"--url: {url}: {error}") from error
    except httpx2.HTTPError as error:
        why = str(error) or type(error).__name__
        raise ConformanceError(
            f"--url: no server answers at {url}: {why}; start it first"
        ) from error
