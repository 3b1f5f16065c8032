"""A client of the native protocol that logs in and returns answers as documents that can be compared and stored.

An answer is {} for a statement without rows, {"rows": [...], "columns": [...]}, or {"error": code, "message": text}, each with
"warnings" if there are some. Values of common types are readable, others hexadecimal.
"""

import struct
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "robustness"))
import wire  # noqa: E402

ROWS, PREPARED = 2, 4
WARNING, TRACING, PAYLOAD = 8, 2, 4
ERRORS = {
    0x0000: "ServerError",
    0x000A: "ProtocolError",
    0x0100: "BadCredentials",
    0x1000: "Unavailable",
    0x1001: "Overloaded",
    0x1003: "TruncateError",
    0x1100: "WriteTimeout",
    0x1200: "ReadTimeout",
    0x1300: "ReadFailure",
    0x1400: "FunctionFailure",
    0x1500: "WriteFailure",
    0x2000: "SyntaxError",
    0x2100: "Unauthorized",
    0x2200: "Invalid",
    0x2300: "ConfigError",
    0x2400: "AlreadyExists",
    0x2500: "Unprepared",
}
SIMPLE = {1: "ascii", 2: "bigint", 3: "blob", 4: "boolean", 5: "counter", 7: "double", 9: "int", 0xB: "timestamp", 0xC: "uuid"}
SIMPLE |= {0xD: "text", 0xE: "varint", 0xF: "timeuuid", 0x10: "inet", 0x11: "date", 0x13: "smallint", 0x14: "tinyint"}


class NotLoggedIn(Exception):
    """The server did not let the client in; `answer` is what it said."""

    def __init__(self, answer):
        super().__init__(answer)
        self.answer = answer


class Reader:
    """Takes the parts of a body one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        part = self.data[self.at : self.at + size]
        self.at += size
        return part

    def number(self, code):
        return struct.unpack(f">{code}", self.take(struct.calcsize(code)))[0]

    def string(self):
        return self.take(self.number("H")).decode()

    def value(self):
        size = self.number("i")
        return None if size < 0 else self.take(size)

    def type(self):
        """A type: (name, types of elements)."""
        code = self.number("H")
        if code in (0x20, 0x22):
            return {0x20: "list", 0x22: "set"}[code], [self.type()]
        if code == 0x21:
            return "map", [self.type(), self.type()]
        if code == 0x31:
            return "tuple", [self.type() for _ in range(self.number("H"))]
        if code == 0x30:
            self.string()
            return self.string(), [(self.string(), self.type())[1] for _ in range(self.number("H"))]
        if code == 0:
            return self.string(), []
        return SIMPLE.get(code, f"type {code}"), []


def type_name(type_):
    name, elements = type_
    return f"{name}<{', '.join(map(type_name, elements))}>" if elements else name


def readable(type_, data):
    """A value as JSON can hold it."""
    name, elements = type_
    if data is None:
        return None
    if name in ("text", "ascii"):
        return data.decode()
    if name == "boolean":
        return data != b"\0"
    if name in ("int", "bigint", "smallint", "tinyint") and data:
        return int.from_bytes(data, "big", signed=True)
    if name in ("set", "list", "map"):
        reader = Reader(data)
        parts = [[readable(element, reader.value()) for element in elements] for _ in range(reader.number("i"))]
        return [part[0] for part in parts] if name != "map" else [[key, value] for key, value in parts]
    return data.hex()


def rows(reader):
    """The body of a RESULT of rows, after its kind."""
    flags, width = reader.number("i"), reader.number("i")
    if flags & 2:
        reader.value()
    if flags & 1:
        reader.string()
        reader.string()
    columns = []
    for _ in range(width):
        if not flags & 1:
            reader.string()
            reader.string()
        columns.append((reader.string(), reader.type()))
    found = [[readable(type_, reader.value()) for _, type_ in columns] for _ in range(reader.number("i"))]
    return {"columns": [f"{name} {type_name(type_)}" for name, type_ in columns], "rows": found}


def document(answer):
    """A response frame as a document. `None` is a closed connection."""
    if answer is None:
        return {"closed": True}
    reader, said = Reader(answer.body), {}
    if answer.flags & TRACING:
        reader.take(16)
    if answer.flags & WARNING:
        said["warnings"] = [reader.string() for _ in range(reader.number("H"))]
    if answer.opcode == wire.ERROR:
        code = reader.number("i")
        said |= {"error": ERRORS.get(code, hex(code)), "message": reader.string()}
    elif answer.opcode == wire.RESULT:
        kind = reader.number("i")
        if kind == ROWS:
            said |= rows(reader)
        elif kind == PREPARED:
            said["prepared"] = reader.take(reader.number("H"))
    elif answer.opcode == wire.AUTHENTICATE:
        said["authenticate"] = reader.string()
    elif answer.opcode == wire.AUTH_CHALLENGE:
        said["challenge"] = (reader.value() or b"").hex()
    elif answer.opcode == wire.AUTH_SUCCESS:
        token = reader.value()
        said["success"] = None if token is None else token.hex()
    else:
        said["opcode"] = answer.opcode
    return said


def plain(name, password):
    """The token of SASL PLAIN."""
    return b"\0" + name.encode() + b"\0" + password.encode()


class Refused:
    """In place of a client that could not log in."""

    def __init__(self, answer):
        self.answer = {"login": answer}

    def close(self):
        """There is nothing to close."""

    def query(self, _):
        return self.answer

    def prepare(self, _):
        return self.answer, None

    def batch(self, _):
        return self.answer


class Client:
    """A connection, logged in as `name` unless that is None."""

    def __init__(self, address, name=None, password=None, version=4):
        self.wire = wire.Client(address, version=version, started=False)
        if name is not None:
            first = document(self.ask(wire.STARTUP, wire.startup()))
            answer = first
            if "authenticate" in first:
                answer = document(self.ask(wire.AUTH_RESPONSE, wire.value(plain(name, password))))
            if "success" not in answer:
                self.close()
                raise NotLoggedIn(answer)

    def close(self):
        self.wire.socket.close()

    def ask(self, opcode, body=b""):
        """The answer to one frame, or None if the server closed the connection."""
        return self.wire.ask(opcode, body)

    def query(self, cql):
        """The answer to a statement."""
        return document(self.ask(wire.QUERY, wire.query(cql)))

    def prepare(self, cql):
        """The answer to PREPARE and the statement's identifier, if it has one."""
        answer = document(self.ask(wire.PREPARE, wire.long_string(cql)))
        return answer, answer.pop("prepared", None)

    def execute(self, identifier):
        """The answer to EXECUTE without values."""
        return document(self.ask(wire.EXECUTE, wire.execute(identifier)))

    def batch(self, texts):
        """The answer to a BATCH frame of texts."""
        return document(self.ask(wire.BATCH, wire.batch(texts)))
