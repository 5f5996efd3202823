"""The deterministic loop, replay, and the kinds of operation. No I/O, no clock."""
