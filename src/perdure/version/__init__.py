"""What a version of a workflow is, which label it gets, and which version a run is bound to.

The source side reads files and parses them; it never imports or executes them:
`locate` → `tree` → `scan` (with `canonical` and `reference`) → `closure` → `definition` → `survey`.

The deciding side is pure: `label`, `known`, `publication`, `resolution`, `route`, `origin`.

What is stored goes out as a `manifest` of files and their blobs, and comes back through `unpack`.
"""
