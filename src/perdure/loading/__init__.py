"""Where the code that a process imports comes from: an old version's from its snapshot, a worker's own from its files.

`guard` serves the first-party modules of one version from its unpacked tree and refuses those of others. `provided`
knows what installed distributions bring, `paths` takes deployed code off the path, here and in child processes
(`inside`). `watching` keeps a worker from mixing its own code with files that were changed under it.
"""
