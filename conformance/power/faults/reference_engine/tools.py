"""What these faults share: whose they are, and which caches they need."""

from __future__ import annotations

from functools import partial

from conformance.core.faults.declaration import fault

# The engine in which prompts and rows that decode share a pass.
reference_fault = partial(fault, engine="reference_mixed")

ATTENTION = "cache:*KVCache"
