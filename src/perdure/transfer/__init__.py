"""Moves a whole store from one database to another; see `perdure.store.bulk` and ADR 0018."""
