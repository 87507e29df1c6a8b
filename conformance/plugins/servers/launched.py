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
    """Each layer split over two processes: what the server does with a group by itself."""

    name: ClassVar[str] = "mlx_lm_server_tensor_parallel"
    # It refuses adapters there.
    capabilities: ClassVar[frozenset[Capability]] = MlxLmServer.capabilities - {Capability.ADAPTERS}
    imported: ClassVar[tuple[str, ...]] = ()

    def launcher(self) -> Sequence[str]:
        """The ring is on loopback; the server's address is that of its first process."""
        launch = str(Path(sys.executable).with_name("mlx.launch"))
        ring = ("--backend", "ring", "-n", _SIZE, "-p", str(free_port()))
        return (launch, *ring, "--")

    def dress(self, folder: Path) -> None:
        """``sharded_load`` reads the index of the checkpoint's files."""
        super().dress(folder)
        write_index(folder)


class PipelineServer(TensorParallelServer):
    """The layers divided over two processes."""

    name: ClassVar[str] = "mlx_lm_server_pipeline"

    def flags(self) -> Sequence[str]:
        """See ``MlxLmServer.flags``."""
        return (*super().flags(), "--pipeline")
