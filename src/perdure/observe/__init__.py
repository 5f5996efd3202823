"""Event names and observers, one file per exporter."""
