"""How cases are given to workers: a family's together, and none again that killed its worker."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadGroupScheduling


class FamilyScheduling(LoadGroupScheduling):  # type: ignore[misc]
    """``--dist loadgroup``, but what crashed a worker is over.

    xdist's own puts the whole group back in the queue, the crashed item included, which then
    kills the next worker too, and so on until no worker may be restarted.
    """

    def remove_node(self, node: Any) -> str | None:  # noqa: ANN401
        """Take back a dead worker's work; return the item that it died of, if any."""
        work = self.assigned_work.get(node, {})
        crashed: str | None = next(
            (item for unit in work.values() for item, done in unit.items() if not done), None
        )
        if crashed is not None:
            for unit in work.values():
                if crashed in unit:
                    unit[crashed] = True
        left = {scope: unit for scope, unit in work.items() if not all(unit.values())}
        self.assigned_work[node] = left
        super().remove_node(node)
        return crashed
