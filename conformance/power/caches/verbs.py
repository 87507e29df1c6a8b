"""The verbs of a cache, each run on the cache and on its rows, and what must hold after each."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from conformance.power.caches.feeding import Feeding
from conformance.power.caches.finding import Problem, Problems, at_once
from conformance.power.caches.kinds.kind import Kind
from conformance.power.caches.rows import Feed, Row

Report = Callable[..., None]


class Verbs:
    """One cache and its rows. Each verb returns a text of its action, ``None`` if it did nothing.

    Attributes:
        cache: the cache under test; ``None`` before ``new``.
        rows: the tokens that the cache must hold.
        dtypes: the dtypes of all contents so far.
    """

    def __init__(self, kind: Kind, report: Report, note: Callable[[str], str]) -> None:
        """``report`` gets problems, and ``note`` a verb's text before the verb runs."""
        self._kind = kind
        self._report = report
        self._note = note
        self._feeding = Feeding(kind, report, note)
        self.cache: Any = None
        self.rows: list[Row] = []
        self.dtypes = {kind.dtype}

    @property
    def has_content(self) -> bool:
        """Whether there is a cache that was fed."""
        return self.cache is not None and self._kind.fed(self.cache)

    def compare(self) -> Problems:
        """The differences between the cache and its rows."""
        return check(self._kind, self.cache, self.rows, dtypes=self.dtypes)

    def new(self, how: int, *lengths: int) -> str | None:
        """Make a cache and feed the prompts."""
        if self.cache is not None:
            return None
        self.cache, self.rows, text = self._feeding.begin(how, lengths)
        return text

    def nothing(self) -> None:
        """Do nothing; shrinking replaces verbs with this one."""

    def decode(self, steps: int) -> str:
        """Feed one token to each row, a few times."""
        text = self._note(f"update: one token each, {1 + steps % 4} times")
        for _ in range(1 + steps % 4):
            self.rows = self._feeding.block(self.cache, self.rows, 1)
        return text

    def block(self, width: int) -> str | None:
        """Feed several tokens to each row at once."""
        if not self._kind.blocks:
            return None
        text = self._note(f"update: {2 + width % 3} tokens each at once")
        self.rows = self._feeding.block(self.cache, self.rows, 2 + width % 3)
        return text

    def prefill(self, chunk: int, middle: int, *lengths: int) -> str | None:
        """Ragged prompts, padded on the right, in pieces; rows may join or leave in between."""
        self.cache, self.rows, text = self._feeding.prefill(
            self.cache, self.rows, lengths, chunk=1 + chunk % 5, middle=middle
        )
        return text

    def filter(self, *picks: int) -> str | None:
        """Keep some rows, in the order of ``picks``."""
        kept = list(dict.fromkeys(pick % len(self.rows) for pick in picks))
        if not self._kind.has("filter") or not kept or self._kind.single:
            return None
        text = self._note(f"filter: keep slots {kept}")
        self.cache.filter(mx.array(kept) if picks[0] % 2 else kept)
        self.rows = [self.rows[index] for index in kept]
        return text

    def extend(self, steps: int, how: int, *lengths: int) -> str | None:
        """Append the rows of another batch."""
        if not self._kind.has("extend") or self._kind.single or len(self.rows) > 8:
            return None
        other, rows, text = self._feeding.begin(how, lengths)
        if any(row.tokens for row in rows):
            for _ in range(steps % 3):
                rows = self._feeding.block(other, rows, 1)
            text += f"; then {steps % 3} tokens each"
        text = self._note(text)
        self.cache.extend(other)
        self.rows = [*self.rows, *rows]
        return text

    def extract(self, index: int) -> str | None:
        """Extract one row and check it; the batch does not change."""
        if not self._kind.has("extract"):
            return None
        text = self._note(f"extract slot {index % len(self.rows)}")
        self._extracted(index % len(self.rows))
        return text

    def _extracted(self, slot: int) -> Any:
        single = self.cache.extract(slot)
        kind = self._kind if self._kind.single else self._kind.share(self._kind.partner())
        for problem in check(kind, single, [self.rows[slot]], dtypes=self.dtypes):
            self._report(Problem(problem.what, f"the row alone: {problem.text}"), probed=True)
        return single

    def merge(self, length: int) -> str | None:
        """Extract all rows and merge them with a new single stream into a batch."""
        if not self._kind.has("merge") or not (self._kind.single or self._kind.has("extract")):
            return None
        text = self._note(f"extract all, merge with a single stream of {length % 9}")
        stream = self._kind if self._kind.single else self._kind.share(self._kind.partner())
        batch = self._kind.share(self._kind.partner()) if self._kind.single else self._kind
        count = len(self.rows)
        parts = [self.cache] if self._kind.single else [self._extracted(i) for i in range(count)]
        fresh, row = self._feeding.single(stream, length % 9)
        merged, rows = self._kind.merged([*parts, fresh]), [*self.rows, row]
        if not self._kind.single:
            self.cache, self.rows = merged, rows
            return text
        for problem in check(batch, merged, rows, dtypes=self.dtypes):
            self._report(problem)
        if not batch.fed(merged):
            return text
        single = merged.extract(0)
        self.cache = single if type(single) is type(self.cache) else self.cache
        return f"{text}, extract slot 0"

    def keep(self, room: int, file: int = 0) -> str | None:
        """Keep each row like prefix caching, and build a batch from the kept rows.

        Args:
            room: room for this many more tokens.
            file: if odd, kept rows are written to a file and read again.
        """
        if not keeps(self.cache) or not (self._kind.single or self._kind.has("extract")):
            return None
        where = " in a file" if file % 2 else ""
        text = self._note(f"each row kept{where}, with room for {room % 9} more, and put together")
        stream = self._kind if self._kind.single else self._kind.share(self._kind.partner())
        count = len(self.rows)
        # A batch with this method is kept unchanged if it has one row, and else not at all.
        asked = self._kind.has("is_single_row") and not self._kind.single
        if asked and count > 1 and kept(self.cache, None) is not None:
            self._report(Problem("returned", f"{count} rows are kept as one"))
        whole = self._kind.single or (asked and count == 1)
        parts = [self.cache] if whole else [self._extracted(i) for i in range(count)]
        capacities = [len(row) + room % 9 if room % 9 else None for row in self.rows]
        copies = [kept(part, most) for part, most in zip(parts, capacities, strict=True)]
        if any(copy is None for copy in copies):
            return None
        if file % 2 and all(row.tokens for row in self.rows):
            copies = [
                through_file(copied, len(row), most)
                for copied, row, most in zip(copies, self.rows, capacities, strict=True)
            ]
            if any(copy is None for copy in copies):
                return None
        # For a row without tokens, a model's own empty cache may be kept.
        cold = [
            not row.tokens and type(copied) is not stream.cls and copied.empty()
            for copied, row in zip(copies, self.rows, strict=True)
        ]
        for copied, row, none in zip(copies, self.rows, cold, strict=True):
            if none:
                continue
            for problem in check(stream, copied, [row], dtypes=self.dtypes):
                self._report(Problem(problem.what, f"the row as kept: {problem.text}"))
        if self._kind.single:
            self.cache = copies[0]
            return text
        merged = put_together(copies, [len(row) for row in self.rows])
        self.cache = self.cache if merged is None or all(cold) else merged
        return text

    def trim(self, count: int) -> str | None:
        """Trim the last tokens of all rows, if the cache can."""
        most = min(len(row) for row in self.rows)
        count = 1 + count % 3
        if not self._kind.has("trim") or count > most or not self.cache.is_trimmable():
            return None
        text = self._note(f"trim {count}")
        done = self.cache.trim(count)
        if done != count:
            self._report(Problem("returned", f"trim({count}) says {done}"))
        self.rows = [Row(row.uid, row.tokens[:-count]) for row in self.rows]
        return text

    def copy(self) -> str:
        """Feed a copy; the original must not change."""
        text = self._note("copy, one token each for the copy")
        twin = copy.deepcopy(self.cache)
        self._feeding.block(twin, self.rows, 1)
        return text

    def reload(self) -> str | None:
        """Make a new cache from the state."""
        text = self._note("from_state of its state")
        self.cache = reloaded(self.cache)
        return text

    def restore(self) -> str | None:
        """Set the state of an empty cache."""
        text = self._note("state put into an empty cache")
        self.cache = restored(self.cache, self._kind.new([0] * len(self.rows)))
        return text


PROBE_STAMP = 245


def check(kind: Kind, cache: Any, rows: Sequence[Row], *, dtypes: set[Any]) -> Problems:
    """Check all that the cache reports, and all that the next queries would see.

    Args:
        kind: the kind of the cache.
        cache: not changed, because probes are fed to copies.
        rows: the tokens that the cache must hold.
        dtypes: the dtypes fed to the cache.
    """
    yield from _offsets(kind, cache, rows)
    yield from _sizes(kind, cache, rows)
    found = kind.dtypes(cache)
    if len(dtypes) == 1 and found - dtypes:
        yield Problem("dtype", f"holds {_names(found)}, was fed {_names(dtypes)}")
    for width in (1, 2) if kind.blocks else (1,):
        yield from probe(kind, cache, rows, width)


def probe(kind: Kind, cache: Any, rows: Sequence[Row], width: int) -> Problems:
    """Check what the next ``width`` tokens of each row would see."""
    twin = copy.deepcopy(cache)
    feed = Feed(rows, [row.following(width, PROBE_STAMP) for row in rows])
    seen = False
    for problem in kind.feed(twin, feed):
        seen = True
        yield at_once(problem, width)
    if not seen:
        yield from _offsets(kind, twin, feed.after())


def _offsets(kind: Kind, cache: Any, rows: Sequence[Row]) -> Problems:
    got, wanted = kind.offsets(cache), [len(row) for row in rows]
    if got is not None and got != wanted:
        yield Problem("offset", f"offsets {got}, expected {wanted}")


def _sizes(kind: Kind, cache: Any, rows: Sequence[Row]) -> Problems:
    try:
        got, held = cache.nbytes, kind.held(cache)
        if got != held:
            yield Problem("nbytes", f"nbytes says {got}, {held} are held")
    except (NotImplementedError, AttributeError) as error:
        yield Problem("nbytes", f"nbytes: {type(error).__name__}: {error}")
    some = any(row.tokens for row in rows)
    if not hasattr(cache, "empty"):
        yield Problem("empty", "there is no empty()")
        return
    if some and cache.empty():
        yield Problem("empty", "empty() of a cache with tokens is true")
    if not kind.fed(cache) and not cache.empty():
        yield Problem("empty", "empty() of a cache that was never fed is false")
    if kind.has("trim") and kind.is_whole(rows) and not cache.is_trimmable():
        yield Problem("returned", "is_trimmable() is false, and all tokens are there")
    if kind.checks_size and type(cache).size is not _inherited_size(type(cache)):
        size, least = cache.size(), kind.size_of(rows)
        if size < least:
            yield Problem("size", f"size() says {size}, a row has {least}")


def _inherited_size(cls: type[Any]) -> Any:
    """The base class's size(); a class that inherits it does not know its size."""
    return next((base.__dict__["size"] for base in cls.__mro__[-2:] if "size" in vars(base)), None)


def _names(dtypes: set[Any]) -> str:
    return " and ".join(sorted(str(dtype).rpartition(".")[2] for dtype in dtypes)) or "nothing"


# The names of the one file, and of the content next to the tokens.
_KEY, _EXTRA = 41, 7


def reloaded(cache: Any) -> Any:
    """The cache made by ``from_state``; mlx-vlm keeps a part in ``meta_state``."""
    cls = type(cache)
    if len(inspect.signature(cls.from_state).parameters) > 1:
        return cls.from_state(cache.state, cache.meta_state)
    return cls.from_state(cache.state)


def restored(cache: Any, empty: Any) -> Any:
    """The empty cache after its state was set."""
    empty.state = cache.state
    if hasattr(type(empty), "meta_state"):
        empty.meta_state = cache.meta_state
    return empty


def keeps(cache: Any) -> bool:
    """Whether the library's prefix caching has functions that keep such a cache."""
    return _adapters(cache) is not None


def kept(cache: Any, capacity: int | None) -> Any:
    """The cache as kept by the library's prefix caching; ``None`` if it keeps none of the class.

    Args:
        capacity: tokens that must fit in, as for a prompt that continues.
    """
    return _adapters(cache).clone_cache_entry(cache, min_capacity_tokens=capacity, eval_targets=[])


def through_file(cache: Any, tokens: int, capacity: int | None) -> Any:
    """The cache that a restarted server finds in its predecessor's files; ``None`` if none.

    Args:
        tokens: the number of tokens in the cache; the prompt that finds it has one more.
        capacity: as for ``kept``.
    """
    package = type(cache).__module__.partition(".")[0]
    make = importlib.import_module(f"{package}.apc").DiskBlockStore
    prompt = list(range(tokens + 1))
    with tempfile.TemporaryDirectory() as folder:
        before = make(Path(folder))
        # Up to 0.7.0 its own thread writes, until the store is closed, and nothing is returned.
        save = before.save_exact_cache
        known = "synchronous" in inspect.signature(save).parameters
        wrote = save(_KEY, prompt[:-1], _EXTRA, [cache], **({"synchronous": True} if known else {}))
        before.close()
        after = make(Path(folder))
        found = after.find_exact_prefix(prompt, extra_hash=_EXTRA)
        read = after.load_exact_cache(found[0], min_capacity_tokens=capacity) if found else None
        after.close()
    if read is None or wrote is False:
        return None
    if (found, *read[:2]) != ((_KEY, tokens), tuple(prompt[:-1]), _EXTRA):
        raise AssertionError(f"of {tokens} tokens the file gives {found}, {read[:2]}")
    return read[2][0]


def put_together(caches: Sequence[Any], lengths: Sequence[int]) -> Any:
    """A batch of kept caches of these lengths; ``None`` if the library does not join them."""
    return _adapters(caches[0]).merge_cache_entries(list(caches), list(lengths))


def _adapters(cache: Any) -> Any:
    """The module with which mlx-vlm keeps caches; mlx-lm keeps copies."""
    name = f"{type(cache).__module__.partition('.')[0]}.apc_adapters"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None
