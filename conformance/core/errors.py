"""Every error that a user can cause, in the order in which a run can meet them.

    ConformanceError            one clear sentence: what, where, what to do
    |- PluginError              a plugin could not be loaded or breaks a hook's contract
    |- FamilyError              a family file is missing, malformed or contradictory
    |- CheckpointError          a checkpoint folder is incomplete, damaged, or too large to load
    |- AdoptionError            a new model's config is missing, malformed, or can't be made small
    |- ScheduleError            a schedule (or its JSON) is not valid
    |- ModelError               a model could not be built, loaded or run
    |  `- Unsupported           the library itself refuses to do this
    |     `- NotOffered         a server at a URL does not have this
    |- MachineError              this machine lacks something: disk, memory, a permission
    |- VoidNoiseError           the noise measurement perturbed nothing
    |- GoldenError              a golden file is missing, malformed, or no longer fits its family
    |- VectorsError             exported vectors, or a trace to be judged by them, are malformed
    |- ResultError              a result file is malformed
    |- ReportError              pages can't be written there, or there is nothing to write
    |- ReproError               a case does not fail, or there is no such schedule
    |  `- NoScriptError         a case cannot be written as a short script; names the obstacle
    |- ReleaseError             a release to be compared is named wrongly, or can't be had
    `- ExpectationError         an expectations file is malformed, or matches nothing

The command line prints the message without a traceback and exits with code 2.
"""

_LONGEST = 4000  # characters; a sentence may quote a file


class ConformanceError(Exception):
    """Base of all errors that end in one clear sentence for the user."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


class PluginError(ConformanceError):
    """A plugin could not be loaded, or what it returned breaks the hook's contract."""


class FamilyError(ConformanceError):
    """A family file is missing, malformed or contradicts itself."""


class CheckpointError(ConformanceError):
    """A checkpoint folder is incomplete, damaged or too large: names the file and the field."""


class AdoptionError(ConformanceError):
    """A new model's config is missing, malformed, contradictory, or can't be made small."""


class ScheduleError(ConformanceError):
    """A schedule is not valid: names the field and the value."""


class ModelError(ConformanceError):
    """A model could not be built, loaded or run at all."""


class Unsupported(ModelError):  # noqa: N818 - it is also the name of the verdict
    """The library itself refuses to do this; the message is the library's own."""


class NotOffered(Unsupported):
    """A server at a URL does not have this, which is no defect; the message says how that shows."""


class MachineError(ConformanceError):
    """This machine lacks something (disk, memory, a permission); no engine is at fault."""


class VoidNoiseError(ConformanceError):
    """The noise measurement changed nothing: its envelope would be empty and prove nothing."""


class GoldenError(ConformanceError):
    """A golden file is missing, malformed, or no longer fits what it is the golden of."""


class VectorsError(ConformanceError):
    """Exported vectors, or a trace to be judged by them, are malformed or cannot be made."""


class ResultError(ConformanceError):
    """A result file is malformed: names the line and the field."""


class ReportError(ConformanceError):
    """A report has nothing in it, or cannot be written; names the folder and the reason."""


class ReproError(ConformanceError):
    """A case does not fail, or has no such schedule, so there is nothing to reproduce."""


class NoScriptError(ReproError):
    """A case fails, but cannot be reproduced by a short script; names the obstacle.

    Attributes:
        reason: the obstacle, with the same text for all cases that have it.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class ReleaseError(ConformanceError):
    """A release is named wrongly, or its environment can't be made or run; names both."""


class ExpectationError(ConformanceError):
    """An expectations file is malformed, or one of its entries matches no case."""
