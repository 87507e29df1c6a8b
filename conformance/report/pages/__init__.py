"""Results as a folder of HTML pages that open from disk. Made from data only: nothing is run.

One module for each page; texts for terminals and CI systems are in ``report/``.
"""
