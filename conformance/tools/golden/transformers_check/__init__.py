"""Independent truth: the oracle held against another implementation, Hugging Face transformers.

A tiny transformers model of a family is saved as an ordinary checkpoint; the library loads that, so
through its own ``sanitize``, and both must give the same. torch and transformers are imported here
and nowhere else.
"""
