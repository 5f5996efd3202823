"""Python values as a tree that plain JSON can hold, and back, exactly.

Plain JSON keeps ``None``, ``bool``, ``int``, finite ``float``, ``str``, ``list`` and ``dict`` with
``str`` keys. Anything else becomes an object with a ``"$"`` member, the tag:

    {"$": "set", "v": [1, 2]}                      a builtin (see `lower`)
    {"$": "dataclass", "t": "shop:Order", "v": {}} a record, by the name of its class (see `record`)

Invariants:

INV-1  A stored value says by itself what it is. An annotation never changes a value that
       already fits it; it only supplies classes and turns plain JSON into what it asks for.
INV-2  A name in stored data is only looked up: among the classes of the annotation, then among
       modules that are already imported. Nothing is imported, evaluated, or constructed by calling
       a class that only stored data named.
INV-3  What cannot be read back exactly is refused when it is written, with path and type.

`classes` names classes, `record` takes instances apart and puts them together, `lower` and
`lift` walk values and trees, `annotation` applies annotations.
"""
