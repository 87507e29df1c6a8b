"""An independent check of the oracle: against Hugging Face transformers.

A tiny transformers model of a family is saved as an ordinary checkpoint, which the library loads
through its own ``sanitize``; the outputs of both must agree. Only this folder imports torch.
Batches are compared by ``checks/``.
"""
