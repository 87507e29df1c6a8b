"""The ways to split a model over processes."""

TENSOR, PIPELINE = "tensor", "pipeline"
