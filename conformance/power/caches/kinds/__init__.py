"""How each kind of cache is made, fed and read.

Which verbs are tried, and what must hold after each, is one folder up.
"""
