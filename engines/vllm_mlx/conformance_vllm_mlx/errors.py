"""The scheduler catches exceptions, logs them and ends all requests: here they are raised again."""

import logging

_LOGGER = logging.getLogger("vllm_mlx.scheduler")


class EngineFailedError(Exception):
    """What the scheduler caught; its traceback is in the text."""


class CaughtErrors(logging.Handler):
    """A context that remembers the last error that is logged in it."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self._last = ""

    def emit(self, record):
        """Remember it."""
        self._last = record.getMessage()

    def __enter__(self):
        """From here on."""
        _LOGGER.addHandler(self)

    def __exit__(self, *_):
        """To here."""
        _LOGGER.removeHandler(self)

    def check(self, outputs):
        """Raise where a request ended with an error.

        Raises:
            EngineFailedError: with the scheduler's own text.
        """
        ended = [output.request_id for output in outputs if output.finish_reason == "error"]
        if ended:
            raise EngineFailedError(f"the scheduler ended {', '.join(ended)}: {self._last}")
