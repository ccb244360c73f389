"""How the book shows claims, numbers and figures: what ``companion.sphinx_ext`` is made of."""
