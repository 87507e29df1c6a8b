"""Defines what is right: the oracle, its noise, and engines that are slow and simple.

The oracle shares no code with an engine; libraries and their batched engines are plugins.
"""
