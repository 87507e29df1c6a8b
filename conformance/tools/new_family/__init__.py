"""Makes a tiny family of a full-size model: reads its config, shrinks it, checks it, writes it.

What a family is at run time, its file and facts, belongs to ``core/family.py`` and the plugins.
"""
