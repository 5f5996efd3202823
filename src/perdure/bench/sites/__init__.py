"""One file per kind of database that can be measured."""
