"""The core of a run: find plugins, choose cases, load models, run schedules, judge each case.

``report`` has the output, ``app`` the interface; no plugin is imported by name.
"""
