"""Rows' own caches, shown to a model as one batch.

Each row keeps the single-stream caches that the library makes for it; for the time of one forward
pass an object of this package stands around the rows' caches of a layer. It has no state of its
own that outlives the pass, so no row can come to hold what is another's.
"""
