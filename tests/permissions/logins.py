"""What a server says before somebody has logged in: to every opcode in every state of the connection, and to every kind of token.

A case is a list of frames (name of the opcode, hexadecimal body) that a new connection sends; the answers are recorded, and at last what
it says to a right login. `ANONYMOUS` are statements of a client of a server that asks nobody for a name.
"""

from client import Client, document, plain, wire
from role_servers import cleared

ROLE = "u"
FIXTURE = [
    f"CREATE ROLE {ROLE} WITH PASSWORD = '{ROLE}' AND LOGIN = true",
    "CREATE ROLE nologin WITH PASSWORD = 'x'",
    "CREATE ROLE nopassword WITH LOGIN = true",
]
OPCODES = dict(
    ERROR=0,
    STARTUP=1,
    READY=2,
    AUTHENTICATE=3,
    CREDENTIALS=4,
    OPTIONS=5,
    SUPPORTED=6,
    QUERY=7,
    RESULT=8,
    PREPARE=9,
    EXECUTE=10,
    REGISTER=11,
    EVENT=12,
    BATCH=13,
    AUTH_CHALLENGE=14,
    AUTH_RESPONSE=15,
    AUTH_SUCCESS=16,
    UNKNOWN=17,
)
REQUESTS = {"STARTUP", "OPTIONS", "QUERY", "PREPARE", "EXECUTE", "REGISTER", "BATCH", "AUTH_RESPONSE"}
READ = "SELECT key FROM system.local"
STARTUP = ("STARTUP", wire.startup())
LOGIN = ("AUTH_RESPONSE", wire.value(plain(ROLE, ROLE)))
BODIES = {
    "STARTUP": wire.startup(),
    "QUERY": wire.query(READ),
    "PREPARE": wire.long_string(READ),
    "EXECUTE": wire.execute(b"x" * 16),
    "REGISTER": b"\0\1" + wire.string("SCHEMA_CHANGE"),
    "BATCH": wire.batch([]),
    "AUTH_RESPONSE": LOGIN[1],
}
TOKENS = {
    "right": wire.value(plain(ROLE, ROLE)),
    "unknown name": wire.value(plain("nope", ROLE)),
    "wrong password": wire.value(plain(ROLE, "x")),
    "role without login": wire.value(plain("nologin", "x")),
    "role without login, wrong password": wire.value(plain("nologin", "y")),
    "role without password": wire.value(plain("nopassword", "x")),
    "other case": wire.value(plain(ROLE.upper(), ROLE)),
    "no bytes": wire.value(b""),
    "one byte": wire.value(b"u"),
    "a NUL": wire.value(b"\0"),
    "two NULs": wire.value(b"\0\0"),
    "three NULs": wire.value(b"\0\0\0"),
    "no NUL": wire.value(b"abc"),
    "password only": wire.value(b"\0u"),
    "name and password with one NUL": wire.value(b"u\0u"),
    "three parts after NULs": wire.value(b"\0a\0b\0c"),
    "another NUL at the end": wire.value(b"\0u\0u\0"),
    "who acts for another": wire.value(b"z\0u\0u"),
    "no password": wire.value(b"\0u\0"),
    "no name": wire.value(b"\0\0u"),
    "no UTF-8": wire.value(b"\0\xff\0u"),
    "long name": wire.value(b"\0" + b"n" * 1000 + b"\0u"),
    "long password": wire.value(b"\0u\0" + b"p" * 10_000),
    "bytes after the token": wire.value(plain(ROLE, ROLE)) + b"xx",
}
# Cassandra answers these with an exception's text: only that it is an error counts.
BROKEN_TOKENS = {"null": wire.value(None), "length -2": b"\xff\xff\xff\xfe", "no body": b"", "length beyond the body": b"\0\0\0\x09ab"}
ANONYMOUS = [
    "SELECT role FROM system_auth.roles WHERE role = 'nope'",
    "CREATE ROLE r1",
    "CREATE ROLE IF NOT EXISTS r1",
    "CREATE ROLE r1 WITH PASSWORD = 'x'",
    "CREATE USER r1 WITH PASSWORD 'x'",
    "CREATE ROLE ''",
    "ALTER ROLE r1 WITH LOGIN = true",
    "ALTER ROLE r1",
    "DROP ROLE r1",
    "DROP ROLE IF EXISTS r1",
    "GRANT r1 TO r2",
    "REVOKE r1 FROM r2",
    "GRANT SELECT ON ALL KEYSPACES TO r1",
    "GRANT SELECT ON ALL ROLES TO r1",
    "REVOKE SELECT ON ALL KEYSPACES FROM r1",
    "LIST ROLES",
    "LIST ROLES OF r1",
    "LIST USERS",
    "LIST ALL PERMISSIONS",
    "LIST ALL PERMISSIONS OF r1",
    "ADD IDENTITY 'i' TO ROLE 'r1'",
    "DROP IDENTITY 'i'",
    "CREATE ROLE r1 WITH ACCESS TO DATACENTERS {'nope'}",
    "CREATE ROLE r1 WITH ACCESS FROM CIDRS {'nope'}",
    "CREATE ROLE r1 WITH OPTIONS = {'a': 'b'}",
]


def exchange(client, name, body):
    """What the server says to a frame; of what differs among servers only that it came."""
    answer = client.ask(OPCODES[name], body)
    if answer is not None and answer.opcode == wire.SUPPORTED:
        return {"supported": True}
    said = document(answer)
    if "prepared" in said:
        said["prepared"] = True
    return said


def conversation(server, frames):
    """The answers to frames on a connection of its own; then to STARTUP, and to a login where one is asked for, unless the last was no
    request at all."""
    client = Client(server.address)
    try:
        said = []
        is_request = not frames or frames[-1][0] in REQUESTS
        for frame in [*frames, *([STARTUP] if is_request else [])]:
            said.append(exchange(client, *frame))
            if "closed" in said[-1]:
                return said
        is_asked = any("authenticate" in answer for answer in said) and not any("success" in answer for answer in said)
        return [*said, exchange(client, *LOGIN)] if is_request and is_asked else said
    finally:
        client.close()


def cases(requires_login):
    """(name, frames) of each."""
    states = {"before STARTUP": [], "after STARTUP": [STARTUP]}
    if requires_login:
        states["after a wrong login"] = [STARTUP, ("AUTH_RESPONSE", TOKENS["wrong password"])]
        states["logged in"] = [STARTUP, LOGIN]
    for state, frames in states.items():
        for opcode in OPCODES:
            yield f"{opcode} {state}", [*frames, (opcode, BODIES.get(opcode, b""))]
    for name, token in {**TOKENS, **BROKEN_TOKENS}.items() if requires_login else ():
        yield f"token: {name}", [STARTUP, ("AUTH_RESPONSE", token)]


def comparable(name, said):
    """Without the texts of Java's exceptions."""
    if name.removeprefix("token: ") in BROKEN_TOKENS:
        return [{"error": "some"} if answer.get("error") in ("ServerError", "ProtocolError") else answer for answer in said]
    return said


def documents(server):
    """Each case with its answers, of a server that asks for a login."""
    with cleared(server, []):
        server.setup(*FIXTURE)
        for name, frames in cases(requires_login=True):
            yield {"case": name, "answers": comparable(name, conversation(server, frames))}


def anonymous_documents(server):
    """The same of a server that does not, and what it says to statements about roles."""
    for name, frames in cases(requires_login=False):
        yield {"case": name, "answers": conversation(server, frames)}
    client = Client(server.address)
    try:
        client.ask(wire.STARTUP, wire.startup())
        for cql in ANONYMOUS:
            yield {"case": cql, "answers": [client.query(cql)]}
    finally:
        client.close()
