"""The process that runs old versions: ``python -m perdure.hosting``, started by a worker and by nobody else.

`process` is its life, `control` the two pipes to its worker, `load` how an old version is loaded, `blobs` where its
files come from, `engine` the worker inside. `forking` is a process of its own, which forks hosts.
"""
