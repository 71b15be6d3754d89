"""A gym of environments with vector rewards for language models, and the algorithms that train on them."""

__version__ = "0.1.0"
