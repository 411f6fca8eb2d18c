"""Joins evaluations of focus eval --json that differ in their context: `join_lengths.py FILE...` prints the first with a list
`lengths` in place of its context, stride and rows."""
import json
import pathlib
import sys

files = [json.loads(pathlib.Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
own = ("context", "stride", "rows")
joined = {key: value for key, value in files[0].items() if key not in own}
joined["lengths"] = [{key: file[key] for key in own} for file in files]
print(json.dumps(joined, indent=2))
