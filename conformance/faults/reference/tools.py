"""What these faults share: where they act, and how they are named."""

from __future__ import annotations

from functools import partial

from conformance.faults.base import Fault
from conformance.faults.patching import Injection, Spoil, all_of, exchange

__all__ = ["ATTENTION", "Injection", "Spoil", "all_of", "exchange", "fault"]

# The engine in which prompts and rows that decode share a pass.
fault = partial(Fault, engine="reference_mixed")

ATTENTION = "cache:*KVCache"
