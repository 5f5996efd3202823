"""What database servers have in common; a backend adds a `Dialect` and its SQL.

==============  ===========================================================================
`dialect`       what a backend adds: connections, errors, the hot path of a commit
`links`         the connections of a process, each for one purpose, made anew when lost
`clock`         the server's clock, known without asking each time
`book`          what the second look at a batch that did not fit reads
`claim`         finding due runs and taking them
`lease`         workers
`hint`          telling other processes that something has changed
`listing`       reading
`engine`        `perdure.store.base.Store`, put together from these
==============  ===========================================================================

A backend's ``queries.sql`` has a statement for every name used here, with the same parameters in the same order.
"""
