"""What is done one statement after the other: roles, their options, what they may of each other, the tables of system_auth, logins.

A script is a list of steps, played on a server without other roles and keyspaces. A step is (role, statement); the superuser's are written
as a text alone. `LOGIN name password`, `PREPARE statement` and `ADMIN command` are steps of this module: the first opens a connection of its own and
closes it, the second prepares without executing, the third is a command of nodetool and of `helenus admin`.
"""

import permission_scripts
import role_scripts
from client import Client, NotLoggedIn
from role_servers import SUPERUSER, cleared

KEYSPACES = ["ks", "kn", "kv"]
SCRIPTS = {**role_scripts.SCRIPTS, **permission_scripts.SCRIPTS}


def play(server, step):
    """The answer to a step."""
    role, text = step if isinstance(step, tuple) else (SUPERUSER, step)
    word, _, rest = text.partition(" ")
    if word == "LOGIN":
        name, password = rest.split(" ")
        try:
            Client(server.address, name, password).close()
        except NotLoggedIn as refused:
            return refused.answer
        return {}
    if word == "PREPARE":
        answer, _ = server.session(role).prepare(server.text(rest))
        # Whether it is wise to prepare with USE is no question of permissions.
        answer.pop("warnings", None)
        return answer
    if word == "ADMIN":
        server.administer(*rest.split(" "))
        return {}
    return server.query(role, text)


def answers(server, steps):
    """The answer to each step of a script."""
    with cleared(server, KEYSPACES):
        yield from (play(server, step) for step in steps)


def documents(server):
    """Each script with its answers."""
    for name, steps in SCRIPTS.items():
        played = []
        for step, answer in zip(steps, answers(server, steps), strict=True):
            role, text = step if isinstance(step, tuple) else (SUPERUSER, step)
            played.append({"role": role, "text": text, "answer": answer})
        yield {"script": name, "steps": played}
