"""Which differences between two answers are accepted: those in `accepted.json`.

It is a list of objects: `reason`, and regular expressions that all have to be found: `text` in the statement or the name of the case, `cassandra`
and `helenus` in the answers as JSON.
"""

import json
import re
from pathlib import Path

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
    if answer.get("error") != "SyntaxError":
        return answer
    message = re.sub(r"^line 0:-1 ", "line 1:19 ", answer["message"].replace("'\"\"'", "''"))
    return {**answer, "message": re.sub(r" \(.*\)$", "", message, flags=re.DOTALL)}


def comparable(text, answer):
    """What is compared of an answer. The rows of a whole table of `system_auth` have no order: Cassandra's is that of hashes."""
    answer = without_excerpt(answer)
    if "rows" in answer and re.search(r"FROM system_auth\.\w+$", text):
        answer = {**answer, "rows": sorted(answer["rows"], key=as_text)}
    return answer


def differs(text, cassandra, helenus):
    """Whether an answer is wrong."""
    return comparable(text, cassandra) != comparable(text, helenus) and accepted(text, cassandra, helenus) is None
