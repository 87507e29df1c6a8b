"""What each server does, and a page for each server with the evidence of each family."""

from __future__ import annotations

from collections.abc import Iterator

import jinja2

from conformance.report.pages.environment import Page, render_page
from conformance.report.servers import Compatibility

HERE = "servers.html"


def server_href(name: str) -> str:
    """The path of a server's own page."""
    return f"server-{name}.html"


def render_servers(
    found: Compatibility, environment: jinja2.Environment, *, pages: tuple[Page, ...]
) -> Iterator[tuple[str, str]]:
    """Each page's path and text: the table of all servers first, then one for each."""

    def page(here: str, server: int | None) -> tuple[str, str]:
        text = render_page(
            environment,
            "servers.html.j2",
            here=here,
            pages=pages,
            found=found,
            server=server,
            server_href=server_href,
        )
        return here, text

    yield page(HERE, None)
    for index, name in enumerate(found.servers):
        yield page(server_href(name), index)
