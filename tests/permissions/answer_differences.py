"""Which differences between two answers are accepted: those in `accepted.json`.

It is a list of objects: `reason`, and regular expressions that all have to be found: `text` in the statement or the name of the case, `cassandra`
and `helenus` in the answers as JSON.
"""

import json
import re
from pathlib import Path

# Helenus reads all partitions in pages, and does not warn of it.
OF_AGGREGATES = "Aggregation query used without partition key"
ACCEPTED = json.loads((Path(__file__).parent / "accepted.json").read_text())


def as_text(answer):
    return json.dumps(answer, ensure_ascii=False)


def accepted(text, cassandra, helenus):
    """The reason why answers may differ; `None` if there is none."""
    found = {"text": text, "cassandra": as_text(cassandra), "helenus": as_text(helenus)}
    for entry in ACCEPTED:
        if all(re.search(entry[name], said) for name, said in found.items() if name in entry):
            return entry["reason"]
    return None


def without_excerpt(answer):
    """A syntax error without the excerpt of the statement at its end: where it is cut off differs. The place stays."""
    if not isinstance(answer, dict) or answer.get("error") != "SyntaxError":
        return answer
    message = re.sub(r"^line \d+:-?\d+ (?=.*'<EOF>')", "at the end ", answer["message"].replace("'\"\"'", "''"))
    return {**answer, "message": re.sub(r" \(.*\)$", "", message, flags=re.DOTALL)}


def comparable(text, answer):
    """What is compared of an answer. The rows of a whole table of `system_auth` have no order: Cassandra's is that of hashes."""
    answer = without_excerpt(answer)
    if isinstance(answer, dict) and answer.get("warnings") == [OF_AGGREGATES]:
        answer = {name: part for name, part in answer.items() if name != "warnings"}
    if isinstance(answer, dict) and "rows" in answer and re.search(r"FROM system_auth\.\w+$", text):
        answer = {**answer, "rows": sorted(answer["rows"], key=as_text)}
    return answer


def differs(text, cassandra, helenus):
    """Whether an answer is wrong."""
    return comparable(text, cassandra) != comparable(text, helenus) and accepted(text, cassandra, helenus) is None
