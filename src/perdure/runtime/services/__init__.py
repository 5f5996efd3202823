"""Background services of a worker, one file each."""
