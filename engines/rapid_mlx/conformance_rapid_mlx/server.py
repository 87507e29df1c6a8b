"""``rapid-mlx serve`` as an engine: started here on a family's tiny checkpoint, asked over HTTP."""

from conformance import Capability
from conformance.core.engine_options import PrefixCaching
from conformance.plugins.servers.managed import ManagedEngine
from conformance.plugins.servers.process import HOST
from conformance.plugins.servers.served_engine import SERVED

# Requests that may wait: 256 by default, after which it answers, as documented, that it is busy.
_WAITING = "1000"


class RapidMlxServer(ManagedEngine):
    """The command ``rapid-mlx serve``, whose options ``python -m rapid_mlx.server`` has not."""

    name = "rapid_mlx_server"
    library = "mlx_lm"
    packages = ("rapid-mlx",)
    capabilities = SERVED | {
        Capability.CANCEL,
        Capability.COMPLETIONS,
        Capability.PREFIX_CACHING,
        Capability.PROBES,
        Capability.SLOTS,
        Capability.STOP,
    }

    @classmethod
    def module(cls):
        """See ``ManagedEngine.module``."""
        return "rapid_mlx.cli"

    def flags(self):
        """Sizes, whether prefixes are kept, and how many where few are asked for."""
        options = self._options
        caching = options.prefix_caching
        size: tuple[str, ...] = ()
        if caching is not None and caching.snapshots < PrefixCaching().snapshots:
            # Its default cache counts bytes, by whole MB; one that counts entries can be had.
            size = ("--no-memory-aware-cache", "--prefix-cache-size", str(caching.snapshots))
        return (
            *("--prefill-step-size", str(options.prefill_step_size)),
            *("--prefill-batch-size", str(options.prefill_batch_size)),
            *("--completion-batch-size", str(options.completion_batch_size)),
            *("--max-num-seqs", str(options.completion_batch_size)),
            *("--max-concurrent-requests", _WAITING),
            "--disable-prefix-cache" if caching is None else "--enable-prefix-cache",
            *size,
            "--disable-disk-caches",
            "--disable-model-downloads",
            "--yes",
        )

    def environment(self):
        """It must not report its use to anyone."""
        return {"RAPID_MLX_TELEMETRY": "0", "DO_NOT_TRACK": "1"}

    def place(self, folder, port):
        """See ``ManagedEngine.place``: its model is an argument of a subcommand."""
        return ["serve", str(folder), "--host", HOST, "--port", str(port)]
