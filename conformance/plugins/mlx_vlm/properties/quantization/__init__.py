"""Properties of keys and values in fewer bits: policies, TurboQuant's codecs and caches.

Uniform bits in attention are in ``backend``, for both libraries.
"""
