"""Properties of mlx-vlm's store of prefixes: pool, files, budgets, adapters of cache classes.

Rows that begin with kept prefixes belong in ``generator``.
"""
