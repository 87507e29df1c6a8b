"""Measures the memory of its caches, on the toy model: one engine is right, some fake it."""

import msgspec

from conformance.core.engine import Capability
from conformance.core.trace import KeptCache
from miniatures.storing import TOKEN, StoresSequences


class Weighs(StoresSequences):
    """Computes all that it keeps, and cuts each row's cache out of the batch's."""

    capabilities = StoresSequences.capabilities | {Capability.WEIGHED}

    def pending(self):
        return 0

    def give_up(self, request_id, *, computed):
        nbytes = 4 * len(self.done[request_id])
        return KeptCache(request_id, nbytes, nbytes)

    def give_up_stored(self):
        stored = [tokens for of_kind in self.sequences.values() for tokens in of_kind]
        nbytes = TOKEN * min(map(len, stored))
        return KeptCache("the shortest", nbytes, nbytes)


class WeighsOneByOne(Weighs):
    """Has one row, whatever the options."""

    def __init__(self, model, options):
        super().__init__(model, msgspec.structs.replace(options, completion_batch_size=1))


class CountsNoGraph(Weighs):
    """Does not look at what is still to be computed."""

    def pending(self):
        return None


class KeepsNoCache(Weighs):
    """Has released an ended request's cache before it is requested."""

    def give_up(self, request_id, *, computed):
        return None


class StoresNothing(Weighs):
    """Has released what it stored before it is requested."""

    def give_up_stored(self):
        return None
