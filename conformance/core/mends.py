"""What a mend is: the repair of one known defect, put into a running library and taken out again.

The mirror of a fault (``core/faults/``), made of the same patches. With its known defects mended, a
case must be right: that proves the diagnosis, and lets a new defect behind a known one be seen.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from conformance.core.faults.active import noted
from conformance.core.faults.declaration import Injection


@dataclass(frozen=True)
class Mend:
    """The repair of a known defect in memory; the decorator ``mend`` makes one of a function.

    Attributes:
        name: of its function.
        defects: the ids of the entries of ``expectations/`` that it repairs: usually one; several
            where one cause has several entries.
        summary: what is right instead, in one sentence.
        repair: a context manager; inside it the defect is not there. Its ``hits`` count where what
            it does differs from the library: a mend without hits repaired nothing.
        single_stream: the defect is in the single stream too, so that the single stream, and all
            that is compared with it, is made anew with the mend.
        other_pieces: once it is mended, prompts are prefilled whole, or in pieces that are not
            counted in tokens, so that what a schedule waits for may not be seen. Then findings of
            missing witnesses are left out.
        except_families: globs of families whose code it does not repair whole: there the entry has
            no mend.
    """

    name: str
    defects: tuple[str, ...]
    summary: str
    repair: Injection
    single_stream: bool = False
    other_pieces: bool = False
    except_families: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Names it among all mends: the first of its entries."""
        return self.defects[0]


def mend(
    *defects: str,
    single_stream: bool = False,
    other_pieces: bool = False,
    except_families: tuple[str, ...] = (),
) -> Callable[[Injection], Mend]:
    """Make a ``Mend`` of the function below; its summary is the docstring's first paragraph.

    ::

        @mend("arrays-cache-extract-view")
        def extracted_rows_are_copies(hits: Hits) -> Patch:
            '''A row that is taken out of the batch holds its own states, and no view.'''

            def copied(cache: Any, *args: Any) -> Any:
                ...

            return after(ArraysCache, "extract", copied)
    """

    def declare(repair: Injection) -> Mend:
        summary = " ".join((inspect.getdoc(repair) or "").partition("\n\n")[0].split())
        return Mend(
            repair.__name__,
            defects,
            summary,
            noted(repair),
            single_stream,
            other_pieces,
            except_families,
        )

    return declare
