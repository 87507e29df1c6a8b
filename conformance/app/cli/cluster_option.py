"""``--cluster``: the cases are played by the workers of a Dask scheduler."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any, TypeVar

import click

from conformance.app.cli import parallel
from conformance.app.cli.options import cores
from conformance.app.cli.pytest_call import call_pytest
from conformance.app.pytest_plugin.options import Settings
from conformance.core.errors import ConformanceError

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
R = TypeVar("R")


def cluster_option(function: F) -> F:
    """The option; given to the command as ``cluster``."""
    return click.option(
        "--cluster",
        metavar="ADDRESS",
        help="Let the workers of the Dask scheduler at this address play the cases, for example "
        "tcp://10.0.0.1:8786; a lost worker's are played again. Needs the extra 'cluster'.",
    )(function)


def on_cluster(
    address: str, settings: Settings, progress: object, *, exitfirst: bool
) -> tuple[int, str]:
    """Run the suite with its cases on a cluster: pytest's exit code, and what it printed.

    Raises:
        ConformanceError: what is to be played is on this machine alone, the extra is not
            installed, or the cluster is not like this machine.
    """
    _shared(settings)
    with _connected(address) as client:
        from conformance.app.cluster.loop import ClusterLoop  # noqa: PLC0415 - an optional extra

        loop = ClusterLoop(client, settings)
        played = call_pytest(settings, workers=0, exitfirst=exitfirst, plugins=[progress, loop])
    if loop.problem:
        raise ConformanceError(loop.problem)
    return played


class Helpers:
    """Processes that share work: of this machine, or of a cluster's workers.

    Attributes:
        count: how many items are done at once, if there are as many.
        elsewhere: whether a cluster's workers do them.
    """

    def __init__(self, jobs: int | None, client: Any = None) -> None:
        self._jobs, self._client = jobs, client
        self.elsewhere = client is not None
        self.count = sum(client.nthreads().values()) if client else jobs or cores()

    def as_they_come(
        self, work: Callable[[T], R], items: Sequence[T], *, on_crash: Callable[[T], R]
    ) -> Generator[tuple[int, R], None, None]:
        """The index of each item and ``work`` of it, as soon as it is there; each once.

        Raises:
            ConformanceError: the cluster is lost, or a worker is not like this machine.
        """
        if self._client is None:
            yield from parallel.as_they_come(work, items, jobs=self._jobs, on_crash=on_crash)
            return
        from conformance.app.cluster.client import as_they_come  # noqa: PLC0415

        yield from as_they_come(self._client, work, items, on_crash=lambda one, _: on_crash(one))


@contextlib.contextmanager
def helpers(cluster: str | None, jobs: int | None) -> Iterator[Helpers]:
    """Those of the cluster at that address; without one, so many processes of this machine.

    Raises:
        ConformanceError: the extra is not installed, or the cluster is not like this machine.
    """
    if cluster is None:
        yield Helpers(jobs)
        return
    with _connected(cluster) as client:
        yield Helpers(jobs, client)


def _connected(address: str) -> AbstractContextManager[Any]:
    if find_spec("distributed") is None:
        raise ConformanceError(
            "--cluster needs Dask's scheduler: pip install 'mlx-conformance[cluster]'"
        )
    from conformance.app.cluster.client import connected  # noqa: PLC0415

    return connected(address)


def _shared(settings: Settings) -> None:
    """Refuse what workers do not have.

    Raises:
        ConformanceError: an option names a file or a module of this machine.
    """
    for option, given in (
        ("--family-file", settings.family_files),
        ("--plugin", settings.plugins),
        ("--expectations", settings.expectations),
        ("--model", settings.checkpoint),
        ("--devices", settings.devices),
    ):
        if given:
            raise ConformanceError(
                f"--cluster: workers do not have what {option} names: leave it out"
            )
