"""What users import: decorators, engines, handles on runs, and the functions a run may call."""
