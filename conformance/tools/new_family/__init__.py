"""Makes a tiny family of a full-size model: reads its config, shrinks it, checks it, writes it.

The run-time side of a family, its file and facts, belongs in ``core/family.py`` and the plugins.
"""
