"""Stand-ins for processors that need downloads, or whose images no file can make small.

Each returns the processor's inputs for the model from small images; ``kinds`` lists them by name.
"""
