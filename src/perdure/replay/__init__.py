"""Checks code against recorded runs: replays their logs without executing a step, and says where the two part."""
