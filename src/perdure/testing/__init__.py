"""The public test kit."""
