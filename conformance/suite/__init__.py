"""What ``pytest --pyargs conformance.suite`` collects: every selected case, as one item each.

The items come from ``cases.py`` by way of the pytest plugin; there are no test functions here.
"""
