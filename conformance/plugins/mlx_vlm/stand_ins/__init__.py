"""Stand-ins for processors that need downloads, or whose images no file can make small.

Each gives what the processor would give the model, of small images; ``kinds`` lists them by name.
"""
