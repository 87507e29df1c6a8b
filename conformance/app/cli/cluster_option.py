"""``--cluster``: run cases on the workers of a Dask scheduler."""

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
from conformance.app.run_settings import Settings
from conformance.core.errors import ConformanceError

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
R = TypeVar("R")


def cluster_option(function: F) -> F:
    """The option; passed to the command as ``cluster``."""
    return click.option(
        "--cluster",
        metavar="ADDRESS",
        help="Run the cases on the workers of the Dask scheduler at this address, for example "
        "tcp://10.0.0.1:8786. Cases of a lost worker are rerun. Needs the extra 'cluster'.",
    )(function)


def on_cluster(
    address: str, settings: Settings, progress: object, *, exitfirst: bool
) -> tuple[int, str]:
    """Run the suite on a cluster; return pytest's exit code and output.

    Raises:
        ConformanceError: an option names a file that only this machine has, the extra is not
            installed, or the cluster's workers differ from this machine.
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
    """Processes that share work: on this machine, or a cluster's workers.

    Attributes:
        count: how many items are processed at once.
        elsewhere: whether a cluster's workers process them.
    """

    def __init__(self, jobs: int | None, client: Any = None) -> None:
        self._jobs, self._client = jobs, client
        self.elsewhere = client is not None
        self.count = sum(client.nthreads().values()) if client else jobs or cores()

    def as_they_come(
        self, work: Callable[[T], R], items: Sequence[T], *, on_crash: Callable[[T], R]
    ) -> Generator[tuple[int, R], None, None]:
        """Yield each item's index with the result of ``work``, as soon as it is there.

        Raises:
            ConformanceError: the cluster is lost, or a worker differs from this machine.
        """
        if self._client is None:
            yield from parallel.as_they_come(work, items, jobs=self._jobs, on_crash=on_crash)
            return
        from conformance.app.cluster.client import as_they_come  # noqa: PLC0415

        yield from as_they_come(self._client, work, items, on_crash=lambda one, _: on_crash(one))


@contextlib.contextmanager
def helpers(cluster: str | None, jobs: int | None) -> Iterator[Helpers]:
    """The workers of the cluster at this address; without an address, processes of this machine.

    Raises:
        ConformanceError: the extra is not installed, or the cluster differs from this machine.
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
    """Refuse options that the workers cannot follow."""
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
