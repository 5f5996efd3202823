"""The shop's code, as a user would write it, in two releases. A deploy puts one in its place as ``shop.py``."""
