"""Batch caches that wrap each row's own caches for one forward pass.

Each row keeps the single-stream caches that the library makes for it. During a forward pass an
object of this package wraps the rows' caches of a layer. No state of the wrapper outlives the pass,
so rows cannot get each other's content.
"""
