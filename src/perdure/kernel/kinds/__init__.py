"""The kinds of operation, one file each."""
