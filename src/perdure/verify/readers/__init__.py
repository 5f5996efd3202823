"""Where the rows come from: one file per kind of database, named as its backend, with ``opened(url)``."""
