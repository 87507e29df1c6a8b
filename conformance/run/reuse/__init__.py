"""Results of earlier runs, used again where nothing that a case hangs on has changed.

A case hangs on the modules of its library that its family imports, on modules of the user's own, on
this package, on installed packages, on the machine and on the family's file. All of that is hashed;
what is not known to be equal is played.

Selection and playing of cases belong to the folder above; the oracle's own cache, which holds
single streams and no verdicts, to ``reference/``.
"""
