"""Where runs are recorded: the seam, group commit, and the backends, one file or folder each."""
