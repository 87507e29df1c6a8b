"""A package with an engine of one's own, which works as it is written.

Its files are the templates beside this module.
"""

from conformance.tools.new_engine.engine_package import files_of, write_package

__all__ = ["files_of", "write_package"]
