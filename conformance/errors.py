"""Every error that a user can cause, in the order in which a run meets them.

    ConformanceError            one clear sentence: what, where, what to do
    |- PluginError              a plugin could not be loaded or breaks a hook's contract
    |- FamilyError              a family file is missing, malformed or contradictory
    |- ScheduleError            a schedule (or its JSON) is not valid
    |- ModelError               a model could not be built, loaded or run
    |  `- Unsupported           the library itself says that it cannot do this
    |- VoidNoiseError           the noise measurement perturbed nothing
    |- ResultError              a result file is malformed
    `- ExpectationError         an expectations file is malformed, or matches nothing

The command line prints the message without a traceback and exits with code 2.
"""


class ConformanceError(Exception):
    """Base of all errors that end in one clear sentence for the user."""


class PluginError(ConformanceError):
    """A plugin could not be loaded, or what it returned breaks the hook's contract."""


class FamilyError(ConformanceError):
    """A family file is missing, malformed or contradicts itself."""


class ScheduleError(ConformanceError):
    """A schedule is not valid: names the field and the value."""


class ModelError(ConformanceError):
    """A model could not be built, loaded or run at all."""


class Unsupported(ModelError):  # noqa: N818 - it is also the name of the verdict
    """The library says in its own words that it cannot do this; the words are the message."""


class VoidNoiseError(ConformanceError):
    """The noise measurement changed nothing: its envelope would be empty and prove nothing."""


class ResultError(ConformanceError):
    """A result file is malformed: names the line and the field."""


class ExpectationError(ConformanceError):
    """An expectations file is malformed, or one of its entries matches no case."""
