"""Measuring: what the engine does on this machine, against what the machine can do.

`perdure.bench.workload` says what is measured; `perdure.bench.session` runs it. Every figure is taken in a process of
its own, and every ratio against a floor that was sampled in that process, before and after.
"""

from __future__ import annotations
