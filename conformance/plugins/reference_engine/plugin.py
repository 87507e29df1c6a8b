"""The reference engine as engines of mlx-lm's families: ``--engine 'reference*'``."""

from __future__ import annotations

from typing import ClassVar

from conformance.core.engine import Engine
from conformance.core.faults import Fault
from conformance.plugins.mlx_lm.sampling import make_processors, make_sampler
from conformance.reference import prefill
from conformance.reference.engine import Makers
from conformance.run.hookspecs import hookimpl

MAKERS = Makers(make_sampler, make_processors)


class ReferenceSolo(prefill.Solo):
    """See ``prefill.Solo``."""

    opinion: ClassVar[bool] = True
    makers: ClassVar[Makers] = MAKERS
    reusable: ClassVar[bool] = True


class ReferencePadded(prefill.Padded):
    """See ``prefill.Padded``."""

    opinion: ClassVar[bool] = True
    makers: ClassVar[Makers] = MAKERS
    reusable: ClassVar[bool] = True


class ReferenceMixed(prefill.Mixed):
    """See ``prefill.Mixed``."""

    makers: ClassVar[Makers] = MAKERS
    reusable: ClassVar[bool] = True


@hookimpl
def conformance_engines() -> list[type[Engine]]:
    """Three, which differ in how they prefill."""
    return [ReferenceSolo, ReferencePadded, ReferenceMixed]


@hookimpl
def conformance_faults() -> list[Fault]:
    """Historic defects that fit into no library. Imported late, because they import mlx-lm."""
    from conformance.plugins.reference_engine.faults import FAULTS  # noqa: PLC0415

    return list(FAULTS)
