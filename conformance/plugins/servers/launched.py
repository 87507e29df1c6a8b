"""``mlx_lm.server`` with its model split over two processes, as ``mlx.launch`` starts them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from conformance.core.engine import Capability
from conformance.plugins.distributed.checkpoint import write_index
from conformance.plugins.servers.mlx_lm_server import MlxLmServer
from conformance.plugins.servers.process import free_port

_SIZE = "2"


class TensorParallelServer(MlxLmServer):
    """Each layer split over two processes, the server's default for a group."""

    name: ClassVar[str] = "mlx_lm_server_tensor_parallel"
    # The server refuses adapters in a group.
    capabilities: ClassVar[frozenset[Capability]] = MlxLmServer.capabilities - {Capability.ADAPTERS}
    imported: ClassVar[tuple[str, ...]] = ()

    def launcher(self) -> Sequence[str]:
        """A launcher with a ring on loopback; the first process has the server's address."""
        launch = str(Path(sys.executable).with_name("mlx.launch"))
        ring = ("--backend", "ring", "-n", _SIZE, "-p", str(free_port()))
        return (launch, *ring, "--")

    def dress(self, folder: Path) -> None:
        """Add the index of the checkpoint's files, which ``sharded_load`` reads."""
        super().dress(folder)
        write_index(folder)


class PipelineServer(TensorParallelServer):
    """The layers divided over two processes."""

    name: ClassVar[str] = "mlx_lm_server_pipeline"

    def flags(self) -> Sequence[str]:
        """See ``MlxLmServer.flags``."""
        return (*super().flags(), "--pipeline")
