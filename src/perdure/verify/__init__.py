"""Checks stored data against what the engine promises about it.

Nothing here is shared with the code that writes: the chain, the transitions and the fold of the log are written a
second time, from the documentation, so that one mistake cannot hide itself.
"""
