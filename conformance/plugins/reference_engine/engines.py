"""The reference engines for mlx-lm's families: ``--engine 'reference*'``."""

from __future__ import annotations

from typing import ClassVar

from conformance.plugins.mlx_lm.sampling import make_processors, make_sampler
from conformance.reference import prefill
from conformance.reference.engine import Makers

MAKERS = Makers(make_sampler, make_processors)


class ReferenceSolo(prefill.Solo):
    """See ``prefill.Solo``."""

    opinion: ClassVar[bool] = True
    makers: ClassVar[Makers] = MAKERS


class ReferencePadded(prefill.Padded):
    """See ``prefill.Padded``."""

    opinion: ClassVar[bool] = True
    makers: ClassVar[Makers] = MAKERS


class ReferenceMixed(prefill.Mixed):
    """See ``prefill.Mixed``."""

    makers: ClassVar[Makers] = MAKERS
