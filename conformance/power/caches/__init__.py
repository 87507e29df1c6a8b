"""Property tests of a library's batch caches: random sequences of verbs, compared with plain rows.

No model is run here; the scenarios find wrong caches in a model's batch.
"""
