"""One folder for each task outside the main job, such as ``explain``, ``golden`` and ``mutation``.

Options and output belong in ``app.cli``; what the main job itself needs belongs in ``run``.
"""
