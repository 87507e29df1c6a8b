"""Property tests of a library's batch caches: random sequences of verbs, against rows of tokens.

Here no model is run; what a cache does wrong in a batch of a model is found by the scenarios.
"""
