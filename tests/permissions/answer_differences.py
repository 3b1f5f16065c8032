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


def differs(text, cassandra, helenus):
    """Whether an answer is wrong."""
    return without_excerpt(cassandra) != without_excerpt(helenus) and accepted(text, cassandra, helenus) is None
