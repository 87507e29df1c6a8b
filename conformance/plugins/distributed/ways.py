"""The ways in which a model is split over processes."""

TENSOR, PIPELINE = "tensor", "pipeline"
