"""Version hosts, seen from the worker that keeps them: child processes that run versions which the worker is not.

`job` is what a host is told and what it tells, `cause` why a version cannot run, `supervisor` decides which hosts there
are, `process` starts them, `forkserver` starts them faster. The process itself is `perdure.hosting`.
"""
