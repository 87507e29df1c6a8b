"""``mlx-openai-server launch`` as an engine: started here on a tiny checkpoint, asked over HTTP."""

from conformance import Capability
from conformance.plugins.servers.managed import ManagedEngine
from conformance.plugins.servers.process import HOST
from conformance.plugins.servers.served_engine import SERVED


class MlxOpenaiServer(ManagedEngine):
    """The server's batched path. Its API has chats alone, and no logprobs."""

    name = "mlx_openai_server"
    library = "mlx_lm"
    packages = ("mlx-openai-server",)
    capabilities = SERVED | {
        Capability.CANCEL,
        Capability.PREFIX_CACHING,
        Capability.PROBES,
        Capability.SAMPLERS,
        Capability.SLOTS,
        Capability.STOP,
    }

    @classmethod
    def module(cls):
        """See ``ManagedEngine.module``."""
        return "app.main"

    def place(self, folder, port):
        """See ``ManagedEngine.place``."""
        return [
            "--model-path",
            str(folder),
            "--model-type",
            "lm",
            "--host",
            HOST,
            "--port",
            str(port),
        ]

    def flags(self):
        """Sizes, and how many prompts are kept."""
        options = self._options
        caching = options.prefix_caching
        return (
            *("--prompt-concurrency", str(options.prefill_batch_size)),
            *("--decode-concurrency", str(options.completion_batch_size)),
            *("--prefill-step-size", str(options.prefill_step_size)),
            *("--prompt-cache-size", str(caching.snapshots if caching is not None else 0)),
            "--no-log-file",
        )
