"""Values and exceptions to bytes and back.

`base` is the seam, `json` the codec in use unless told otherwise, `tagged` what it does with
values that JSON lacks. `exception` and `signature` build on any codec. One file per further codec
or transform: `zstd`, `pickle`.
"""
