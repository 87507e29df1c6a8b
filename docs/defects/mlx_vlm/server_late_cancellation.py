"""mlx-vlm's server ends another request than the one whose client has left.

Its generation thread makes a new BatchGenerator when no request is active, and the uids of that one
begin at 0 again (generate/ar.py:2567). A cancellation is kept by uid alone until the next round
(server/generation.py:1104): that of a request which has ended by then ends another one that has the
same uid, with finish_reason "stop". Fixed by uids that go on, or by forgetting cancellations with
the generator.
"""

import sys
import threading
from importlib.metadata import version
from queue import Queue

from mlx_vlm.server.generation import ResponseGenerator


class NewGenerator:
    """The second one, whose first request has uid 0 as that of the first one had."""

    def remove(self, uid):
        return uid == 0


def main() -> int:
    server = ResponseGenerator.__new__(ResponseGenerator)
    server._cancelled, server._cancel_lock = set(), threading.Lock()
    server._cancel(0)  # its request, of the generator before, has ended
    active = {0: {"rqueue": Queue()}}
    server._apply_cancellations(NewGenerator(), active)
    print(
        f"mlx-vlm {version('mlx-vlm')}: expected the new request 0 to go on; left: {list(active)}"
    )
    return 0 if active else 1


if __name__ == "__main__":
    sys.exit(main())
