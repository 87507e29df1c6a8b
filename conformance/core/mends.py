"""A mend: the repair of one known defect, put into a running library and taken out again.

The mirror of a fault (``core/faults/``), made of the same patches. With its known defects mended,
a case must be right: this proves the diagnosis and shows new defects behind the known ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from conformance.core.faults.active import noted
from conformance.core.faults.declaration import Injection


@dataclass(frozen=True)
class Mend:
    """The in-memory repair of a known defect; the decorator ``mend`` makes one from a function.

    Attributes:
        name: its function's name.
        defects: ids of the entries of ``expectations/`` that it repairs: usually one, several if
            one cause has several entries.
        summary: what is right instead, in one sentence.
        repair: a context manager, inside which the defect is repaired. Its ``hits`` count how often
            it acts differently from the library: a mend without hits repaired nothing.
        single_stream: the defect is in the single stream, too, so the single stream and everything
            compared with it are made again with the mend.
        other_pieces: with the mend, prompts are prefilled whole, or in pieces that are not counted
            in tokens, so witnesses of a schedule may be missing; such findings are left out.
        except_families: globs of families that it repairs only in part: for them the entry has no
            mend.
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
        """Its identity among all mends: the first of its entries."""
        return self.defects[0]


def mend(
    *defects: str,
    single_stream: bool = False,
    other_pieces: bool = False,
    except_families: tuple[str, ...] = (),
) -> Callable[[Injection], Mend]:
    """Make a ``Mend`` from the function below; its summary is the docstring's first paragraph.

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
