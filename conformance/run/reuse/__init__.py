"""Reuses results of earlier runs if nothing that a case depends on has changed.

A case depends on the library modules that its family imports, on the user's own modules, on this
package, on installed packages, on the machine and on the family's file. All of these are hashed;
a case is run unless all are known to be equal.

The folder above selects and runs cases; ``reference/`` has the oracle's own cache of single
streams, which has no verdicts.
"""
