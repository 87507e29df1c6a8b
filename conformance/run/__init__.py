"""The main job: find plugins, choose cases, load models, play schedules and judge each case.

What prints is in ``report``, what the user calls in ``app``; no plugin is imported by name.
"""
