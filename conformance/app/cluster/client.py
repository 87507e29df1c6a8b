"""The client of a cluster: it checks the workers, hands out work, and collects the results."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

from distributed import Client, KilledWorker, as_completed

from conformance.app.cluster.worker import Differs, Ended, difference, do, facts
from conformance.core.errors import ConformanceError

CONNECT_SECONDS = 30.0
T = TypeVar("T")
R = TypeVar("R")


@contextlib.contextmanager
def connected(address: str) -> Iterator[Client]:
    """A client of the scheduler at that address, all of whose workers match this machine.

    Raises:
        ConformanceError: the scheduler does not answer, has no workers, or one of them differs.
    """
    try:
        client = Client(address, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        raise ConformanceError(
            f"--cluster: no scheduler answers at {address!r}; `dask scheduler` starts one"
        ) from error
    try:
        _check(client, address)
        yield client
    finally:
        client.close(timeout=CONNECT_SECONDS)


def _check(client: Client, address: str) -> None:
    try:
        found: dict[str, Any] = client.run(facts, on_error="return")
    except Exception as error:
        raise ConformanceError(f"--cluster: {address}: {_first_line(error)}") from error
    if not found:
        raise ConformanceError(
            f"--cluster: the scheduler at {address!r} has no workers; "
            f"`dask worker {address}` starts one"
        )
    for where, others in sorted(found.items()):
        if isinstance(others, BaseException):
            raise ConformanceError(
                f"--cluster: worker {where} has no mlx-conformance like this one: "
                f"{_first_line(others)}"
            )
        if problem := difference(facts(), others, where):
            raise ConformanceError(f"--cluster: {problem}")


def as_they_come(
    client: Client,
    work: Callable[[T], R],
    items: Sequence[T],
    *,
    on_crash: Callable[[T, str], R],
) -> Generator[tuple[int, R], None, None]:
    """The index of each item and the result of ``work`` on it, as soon as available; each once.

    The first items are begun first. Items of a lost worker are done again by another. If the
    iteration is left early, running work is ended.

    Args:
        work: a function of a module; its argument and result can be pickled.
        on_crash: the result of an item that ended its process, or worker after worker, and how.

    Raises:
        ConformanceError: a worker differs from this machine or could not begin, or the scheduler
            is lost.
    """
    run = uuid.uuid4()
    futures = [
        client.submit(
            do, work, item, facts(), key=f"conformance-{run}-{index}", pure=False, priority=-index
        )
        for index, item in enumerate(items)
    ]
    indices = {future.key: index for index, future in enumerate(futures)}
    try:
        for future in as_completed(futures):
            index = indices[future.key]
            found = _found(future)
            given = on_crash(items[index], found.how) if isinstance(found, Ended) else found
            yield index, given
            future.release()
    finally:
        client.cancel([f for f in futures if f.status == "pending"], force=True)


def _found(future: Any) -> Any:
    if future.status == "finished":
        return future.result()
    if future.status != "error":
        raise ConformanceError("--cluster: the connection to the scheduler is lost")
    error = future.exception()
    if isinstance(error, Differs):
        raise ConformanceError(f"--cluster: {error}")
    if isinstance(error, KilledWorker):
        return Ended("the workers that had it ended, one after another")
    raise ConformanceError(f"--cluster: a worker could not begin: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
