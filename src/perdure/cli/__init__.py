"""The command line: ``perdure``. See `perdure.cli.main` for how commands are found."""
