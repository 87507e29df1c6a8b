"""A right engine with a fixed number of slots and no queue, and ones that are wrong about them."""

from miniatures.right import ContinuousBatching


class FixedSlots(ContinuousBatching):
    """Has four slots; a request has one of them from its arrival to its end."""

    name = "fixed_slots"
    slots = 4
    width = slots

    def __init__(self, model, options):
        super().__init__(model, options)
        self.places = [None] * self.width

    def insert(self, submissions):
        free = [slot for slot, name in enumerate(self.places) if name is None]
        if len(submissions) > len(free):
            raise ValueError(f"{len(submissions)} requests for {len(free)} free slots")
        for slot, submission in zip(free, submissions, strict=False):
            self.place(slot, submission)

    def place(self, slot, submission):
        self.places[slot] = submission.request.request_id
        self.queue.append(self.row(submission))

    def leave(self, ended):
        super().leave(ended)
        self.vacate([row.name for row in ended])

    def remove(self, request_ids):
        super().remove(request_ids)
        self.vacate(request_ids)

    def vacate(self, names):
        self.places = [None if name in names else name for name in self.places]

    def rows(self):
        return {row.name: self.places.index(row.name) for row in self.decode}


class KeepsSlotsCache(FixedSlots):
    """A row begins with the cache of the one that had its slot before."""

    def place(self, slot, submission):
        super().place(slot, submission)
        before = getattr(self, "before", {})
        self.queue[-1].fed[:0] = before.get(slot, [])

    def leave(self, ended):
        kept = {self.places.index(row.name): list(row.fed) for row in ended}
        self.before = getattr(self, "before", {}) | kept
        super().leave(ended)


class MovesRows(FixedSlots):
    """Rows move up when one before them leaves, as if there were no slots."""

    def rows(self):
        return {row.name: index for index, row in enumerate(self.decode)}


class SharesSlots(FixedSlots):
    """Says of all rows that they are in the first slot."""

    def rows(self):
        return dict.fromkeys((row.name for row in self.decode), 0)


class CountsFromFour(FixedSlots):
    """Numbers its slots from 4 on."""

    def rows(self):
        return {name: 4 + slot for name, slot in super().rows().items()}


class NoSlots(FixedSlots):
    """Forgets to declare its slots, and so gets more requests than it has slots for."""

    slots = 0
    width = 4


class NamesNoSlots(FixedSlots):
    """Declares slots, and never says which of them a request is in."""

    def rows(self):
        return {}
