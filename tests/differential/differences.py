"""What differs between two answers to one statement, and which differences are accepted.

`accepted.json` is a list of objects: `kind` (a kind of difference, see `difference`), `reason`, and regular expressions that all have to be found:
`cql` in the statement, `cassandra` and `helenus` in the texts of the errors (an answer without an error has the text "").
"""

import json
import re
from pathlib import Path

KINDS = ("error", "text", "columns", "rows", "order", "pages")
ACCEPTED = json.loads((Path(__file__).parent / "accepted.json").read_text())


def difference(cassandra, helenus):
    """The kind of the first difference, of `KINDS`; `None` without one."""
    if cassandra.get("error") != helenus.get("error"):
        return "error"
    if "error" in cassandra:
        return "text" if cassandra["message"] != helenus["message"] else None
    for kind in ("columns", "rows"):
        if cassandra.get(kind) != helenus.get(kind):
            in_order = kind == "rows" and sorted(map(repr, cassandra["rows"])) == sorted(map(repr, helenus["rows"]))
            return "order" if in_order else kind
    return "pages" if cassandra.get("pages") != helenus.get("pages") else None


def accepted(kind, statement, cassandra, helenus):
    """The reason why a difference is no defect; `None` if there is none."""
    texts = {"cql": statement.cql, "cassandra": cassandra.get("message", ""), "helenus": helenus.get("message", "")}
    for entry in ACCEPTED:
        if entry["kind"] == kind and all(re.search(entry[name], text) for name, text in texts.items() if name in entry):
            return entry["reason"]
    return None
