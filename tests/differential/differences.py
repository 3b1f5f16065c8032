"""What differs between two answers to one statement, and which differences are accepted.

`accepted.json` is a list of objects: `kind` (a kind of difference, of `KINDS`), `reason`, and regular expressions that all have to be found:
`cql` in the statement, `cassandra` and `helenus` in the texts of the errors (an answer without an error has the text ""). An answer that
differs in an accepted way is compared further.
"""

import json
import re
from pathlib import Path

KINDS = ("error", "text", "columns", "rows", "order", "pages")
ACCEPTED = json.loads((Path(__file__).parent / "accepted.json").read_text())


# The class of timeuuid that Cassandra names in results of min and max: the driver does not know it.
INTERNAL_TIMEUUID = "'org.apache.cassandra.db.marshal.LegacyTimeUUIDType'"


def of_cassandra(answer):
    """Cassandra's answer, with the type that it names by an internal class."""
    if "columns" not in answer:
        return answer
    columns = [[name, type_.replace(INTERNAL_TIMEUUID, "timeuuid")] for name, type_ in answer["columns"]]
    return {**answer, "columns": columns}


def differences(cassandra, helenus):
    """All kinds of differences, in the order of `KINDS`. Errors, and answers where there is an error, differ in one kind only."""
    if cassandra.get("error") != helenus.get("error"):
        return ["error"]
    if "error" in cassandra:
        return ["text"] if cassandra["message"] != helenus["message"] else []
    kinds = [kind for kind in ("columns", "rows", "pages") if cassandra.get(kind) != helenus.get(kind)]
    if "rows" in kinds and sorted(map(repr, cassandra.get("rows", []))) == sorted(map(repr, helenus.get("rows", []))):
        kinds[kinds.index("rows")] = "order"
    return kinds


def accepted(kind, statement, cassandra, helenus):
    """The reason why a difference is no defect; `None` if there is none."""
    texts = {"cql": statement.cql, "cassandra": cassandra.get("message", ""), "helenus": helenus.get("message", "")}
    for entry in ACCEPTED:
        if entry["kind"] == kind and all(re.search(entry[name], text) for name, text in texts.items() if name in entry):
            return entry["reason"]
    return None
