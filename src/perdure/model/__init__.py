"""Pure data: states, events, writes, policies. No I/O, no clock."""
