"""The cache algebra: batch caches of a library, verb by verb, against plain rows of tokens."""
