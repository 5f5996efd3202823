"""The seam to a database, its backends, and the writer that groups commits."""
