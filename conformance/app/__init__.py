"""What a user starts: the command line, the pytest plugin, its suite, and the assertion.

Only options, output and exit codes are here; all work is done by the folders above.
"""
