"""Makes a tiny family of a full-size model: reads its config, shrinks it, checks it, writes it.

What a family is at run time (its file, its facts) belongs to ``family.py`` and to the plugins.
"""
