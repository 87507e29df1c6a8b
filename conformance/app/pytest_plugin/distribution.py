"""Hands cases to workers: a group's together, the longest first, crashed ones only once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling

from conformance.app.pytest_plugin.options import case_of, golden_of
from conformance.app.pytest_plugin.setup import Setup
from conformance.core.verdict import CaseId


class FamilyScheduling(LoadGroupScheduling):  # type: ignore[misc]
    """``--dist loadgroup``, with eight differences.

    - The group with the most recorded seconds is handed out first, so that no worker begins a long
      one when all others are done. xdist sorts by number of items, or not at all.
    - Cases are grouped by their ids. xdist 3.8 reads a mark that it appends to node ids,
      which pytest 9.2 no longer allows: each item would be a group of its own.
    - An item that crashed a worker is not run again. xdist puts the whole group back in the queue,
      including the crashed item, which then crashes the next worker too, and so on.
    - A worker that replaces a crashed one gets more than one item, or the signal that there are no
      more. A worker begins an item only when it knows the next, so with one it would wait for ever.
    - A worker that ends by itself with an unfinished item has crashed in it.
    - A worker that has not reported its items yet gets none, even if another crashes meanwhile.
    - A worker may retire after a case: nothing crashed, and a fresh one continues.
    - A worker may end before this process learns of it, and may be given work meanwhile. xdist
      takes the closed pipe for an error of its own, and ends the whole session.
    """

    def __init__(
        self,
        config: pytest.Config,
        log: Any,
        setup: Setup,
        retired: Callable[[Any], bool],
    ) -> None:
        super().__init__(config, log)
        self._setup = setup
        self._retired = retired

    def _split_scope(self, nodeid: str) -> str:
        case = case_of(nodeid)
        if case is None:
            # A golden is compared using the model on which its family's cases run.
            return golden_of(nodeid) or str(super()._split_scope(nodeid))
        return self._setup.group_of(CaseId.parse(case))

    def _assign_work_unit(self, node: Any) -> None:
        """Give a worker the longest remaining group; of equal ones the first collected."""
        longest = max(self.workqueue, key=self._seconds_left)
        self.workqueue.move_to_end(longest, last=False)
        with contextlib.suppress(OSError):  # its end is reported next
            super()._assign_work_unit(node)

    def _seconds_left(self, scope: str) -> float:
        """The group's recorded seconds; after a crash, the share of the remaining cases."""
        unit = self.workqueue[scope]
        left = list(unit.values()).count(False)
        return self._setup.seconds.of(scope) * left / max(len(unit), 1)

    def schedule(self) -> None:
        """Hand out work; called whenever a worker is ready for its first item."""
        super().schedule()
        for node in filter(self.registered_collections.__contains__, self.nodes):
            while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
                self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        """Give a worker more work, or let it shut down if there is none."""
        if node in self.registered_collections:
            super()._reschedule(node)

    def remove_node(self, node: Any) -> str | None:
        """Take back a crashed worker's work; return the item that crashed it, if any."""
        work = self.assigned_work.get(node, {})
        crashed: str | None = next(
            (item for unit in work.values() for item, done in unit.items() if not done), None
        )
        for unit in work.values():
            if crashed in unit:
                unit[crashed] = True
        self.assigned_work[node] = {
            scope: unit for scope, unit in work.items() if not all(unit.values())
        }
        super().remove_node(node)
        if self._retired(node):
            return None
        if crashed is not None and hasattr(node, "workeroutput"):
            # The worker reports that it finished, with memory so damaged that it forgot an item.
            # xdist takes that for a defect of its own, ends the whole session, and starts no other
            # worker.
            session = self.config.pluginmanager.getplugin("dsession")
            session.handle_crashitem(crashed, node)
            if self.workqueue:
                session._clone_node(node)
            return None
        return crashed
