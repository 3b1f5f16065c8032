"""Plays the recorded cases of each area on a server and yields what differs: (case, Cassandra's answer, the server's)."""

import corpus
import logins
import matrix
import scripts
from answer_differences import differs
from role_servers import SUPERUSER


def play_matrix(server):
    expected = matrix.recorded(corpus.read("matrix"))
    for grant, name, answer in matrix.answers(server):
        theirs = expected[grant, name]
        if differs(name, theirs, answer):
            yield f"{grant}: {name}", theirs, answer


def play_scripts(server):
    for script in corpus.read("scripts"):
        yield from play_script(server, script)


def play_script(server, script):
    """One script: each step that differs."""
    steps = [(step["role"], step["text"]) for step in script["steps"]]
    for step, answer in zip(script["steps"], scripts.answers(server, steps), strict=True):
        if differs(step["text"], step["answer"], answer):
            role = "" if step["role"] == SUPERUSER else f"{step['role']}: "
            yield f"{script['script']}: {role}{step['text']}", step["answer"], answer


def play_cases(recorded, played):
    expected = {document["case"]: document["answers"] for document in recorded}
    for document in played:
        theirs, ours = expected[document["case"]], document["answers"]
        if differs(document["case"], theirs, ours):
            yield document["case"], theirs, ours


def play_logins(server):
    yield from play_cases(corpus.read("logins"), logins.documents(server))


def play_anonymous(server):
    yield from play_cases(corpus.read("anonymous"), logins.anonymous_documents(server))


AREAS = {"matrix": play_matrix, "scripts": play_scripts, "logins": play_logins, "anonymous": play_anonymous}
