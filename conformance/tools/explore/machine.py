"""Insert, step, remove and extract in any order, made by Hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from conformance.core.options import EngineOptions
from conformance.core.schedule import Continuation, Request
from conformance.scenarios.drawn import Space, draw_options, draw_request
from conformance.scenarios.features import Feature
from conformance.tools.explore.choices import Drawn
from conformance.tools.explore.driving import Drive
from conformance.tools.explore.player import Player

MOST_REQUESTS = 5


class Machine(RuleBasedStateMachine):
    """A program for one engine. A subclass says for which.

    Attributes:
        player: plays it.
        features: that requests and options may have.
        ended: told of the drive when the program has ended, or broke a promise; it may raise.
    """

    player: ClassVar[Player]
    features: ClassVar[frozenset[Feature]]
    space: ClassVar[Space]
    ended: ClassVar[Callable[[Drive], None]]

    def __init__(self) -> None:
        super().__init__()
        self._drive: Drive | None = None
        self._options = EngineOptions()
        self._count = 0
        self._ended = False

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Make the engine."""
        choices = Drawn(data)
        self._options = draw_options(choices, self.player.brief, self.features)
        self._drive = Drive(self.player, self._options)

    @precondition(lambda self: self._count < MOST_REQUESTS)
    @rule(data=st.data())
    def insert(self, data: st.DataObject) -> None:
        """One request or two, in one call."""
        room = min(2, MOST_REQUESTS - self._count)
        count = Drawn(data).integer(1, room)
        self._at_work.insert([self._request(data) for _ in range(count)])

    @rule()
    def step(self) -> None:
        """One step."""
        self._at_work.step()

    @precondition(lambda self: self._can_remove())
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Cancel a request, wherever it is."""
        self._at_work.remove(Drawn(data).pick(self._at_work.live))

    @precondition(lambda self: self._can_extract())
    @rule(data=st.data())
    def extract(self, data: st.DataObject) -> None:
        """Go on from the cache of a request."""
        source, after = Drawn(data).pick(self._at_work.sources())
        going_on = Continuation(source.request_id, after)
        request = msgspec.structs.replace(self._request(data), stop=(), segments=())
        self._at_work.insert([msgspec.structs.replace(request, continues=going_on)])

    @invariant()
    def keeps_its_promises(self) -> None:
        """After each of the above."""
        if self._drive is not None and self._drive.broken is not None:
            self._end()

    def teardown(self) -> None:
        """All come to their ends."""
        if self._drive is not None:
            self._end()

    def _end(self) -> None:
        """Once; what is still called after that does nothing."""
        if not self._ended:
            self._ended = True
            self._at_work.finish()
            type(self).ended(self._at_work)

    @property
    def _at_work(self) -> Drive:
        assert self._drive is not None
        return self._drive

    def _request(self, data: st.DataObject) -> Request:
        name = f"r{self._count}"
        self._count += 1
        own = self.features - {Feature.MEDIA}
        return draw_request(
            Drawn(data),
            self.player.brief,
            own,
            self.space,
            name=name,
            options=self._options,
        )

    def _can_remove(self) -> bool:
        able = Feature.REMOVALS in self.features and self._drive is not None
        return able and bool(self._at_work.live)

    def _can_extract(self) -> bool:
        able = Feature.CONTINUES in self.features and self._drive is not None
        return able and self._count < MOST_REQUESTS and bool(self._at_work.sources())


def machine(**attributes: Any) -> type[Machine]:
    """The machine with these attributes, a class as Hypothesis wants it."""
    attributes["ended"] = staticmethod(attributes["ended"])
    return type("Program", (Machine,), attributes)
