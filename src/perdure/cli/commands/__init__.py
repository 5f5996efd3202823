"""One file per command, named like the command (``_`` for ``-``), each with a `click.Command` called ``command``.

`perdure.cli.main` finds the files by walking this folder; there is no list to keep. A file whose name begins with
``_`` is not a command. What a command raises becomes one line and an exit code in `perdure.cli.main` alone.

The page ``docs/reference/cli.md`` follows from these files: after a change run ``python scripts/reference.py``.
"""
