"""Makes, feeds and reads each kind of cache.

The verbs and the invariants after each verb are in the parent folder.
"""
