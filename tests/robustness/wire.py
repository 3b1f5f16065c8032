"""The native protocol by hand: frames, segments and bodies, right ones and wrong ones.

Invariants: nothing here waits longer than `TIMEOUT_SECONDS`; an answer that is no well-formed response frame is an
error of the server and raised as `BadAnswer`.
"""

import socket
import struct
import zlib

TIMEOUT_SECONDS = 30
ERROR, STARTUP, READY, AUTHENTICATE, OPTIONS, SUPPORTED, QUERY, RESULT, PREPARE = 0, 1, 2, 3, 5, 6, 7, 8, 9
EXECUTE, REGISTER, EVENT, BATCH, AUTH_CHALLENGE, AUTH_RESPONSE, AUTH_SUCCESS = 10, 11, 12, 13, 14, 15, 16
OPCODES = [*range(0, 4), *range(5, 17)]
RESPONSES = {ERROR, READY, AUTHENTICATE, SUPPORTED, RESULT, EVENT, AUTH_CHALLENGE, AUTH_SUCCESS}
COMPRESSED = 1
PROTOCOL_ERROR, INVALID, SYNTAX_ERROR, UNAUTHORIZED = 0x000A, 0x2200, 0x2000, 0x2100
BAD_CREDENTIALS, OVERLOADED = 0x0100, 0x1001
ONE = 1
HEADER_BYTES = 9
CLOSED = (ConnectionResetError, BrokenPipeError)


class BadAnswer(Exception):
    """The server sent what no server may send, or nothing in time."""


def string(text):
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def long_string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack(">i", len(data)) + data


def value(data):
    """A `[value]`: None is null."""
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def string_map(pairs):
    return struct.pack(">H", len(pairs)) + b"".join(string(key) + string(text) for key, text in pairs.items())


def parameters(values=(), page_size=None, paging_state=None):
    """Consistency, flags and what follows them in QUERY and EXECUTE of v3 and v4."""
    flags = (1 if values else 0) | (4 if page_size is not None else 0) | (8 if paging_state is not None else 0)
    out = struct.pack(">HB", ONE, flags)
    if values:
        out += struct.pack(">H", len(values)) + b"".join(map(value, values))
    if page_size is not None:
        out += struct.pack(">i", page_size)
    if paging_state is not None:
        out += value(paging_state)
    return out


def query(text, **options):
    return long_string(text) + parameters(**options)


def execute(identifier, **options):
    return struct.pack(">H", len(identifier)) + identifier + parameters(**options)


def batch(statements):
    """A logged batch of texts without values."""
    return (
        struct.pack(">BH", 0, len(statements))
        + b"".join(b"\0" + long_string(text) + b"\0\0" for text in statements)
        + struct.pack(">HB", ONE, 0)
    )


def startup(**options):
    return string_map({"CQL_VERSION": "3.0.0", **options})


def frame(opcode, body=b"", version=4, stream=0, flags=0, length=None):
    """An envelope; `length` overrides the declared length of the body."""
    return struct.pack(">BBhBI", version, flags, stream, opcode, len(body) if length is None else length) + body


def crc24(data):
    """Of the `data` as in a segment's header (initial value 0x875060, polynomial 0x1974F0B)."""
    crc = 0x875060
    for byte in data:
        crc ^= byte << 16
        for _ in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= 0x1974F0B
    return crc & 0xFFFFFF


def segment(payload, self_contained=True, uncompressed_bytes=None):
    """A v5 segment; with `uncompressed_bytes` (0: the payload is not compressed) one of a compressed connection."""
    if uncompressed_bytes is None:
        header = (len(payload) | self_contained << 17).to_bytes(3, "little")
    else:
        header = (len(payload) | uncompressed_bytes << 17 | self_contained << 34).to_bytes(5, "little")
    trailer = zlib.crc32(payload, zlib.crc32(b"\xfa\x2d\x55\xca"))
    return header + crc24(header).to_bytes(3, "little") + payload + trailer.to_bytes(4, "little")


class Answer:
    """A response frame."""

    def __init__(self, stream, opcode, flags, body):
        self.stream, self.opcode, self.flags, self.body = stream, opcode, flags, body

    @property
    def error_code(self):
        return struct.unpack(">i", self.body[:4])[0] if self.opcode == ERROR else None

    @property
    def message(self):
        """The text of an ERROR."""
        (length,) = struct.unpack(">H", self.body[4:6])
        return self.body[6 : 6 + length].decode()

    @property
    def prepared_id(self):
        (length,) = struct.unpack(">H", self.body[4:6])
        return self.body[6 : 6 + length]

    def __repr__(self):
        return f"<opcode {self.opcode}, stream {self.stream}, {self.body[:200]!r}>"


def take_answer(received):
    """The frame at the start of `received` (a bytearray), which is removed; None if it is not complete."""
    if len(received) < HEADER_BYTES:
        return None
    version, flags, stream, opcode, length = struct.unpack(">BBhBI", received[:HEADER_BYTES])
    if not version & 0x80 or opcode not in RESPONSES:
        raise BadAnswer(f"not a response: {bytes(received[:200])!r}")
    if len(received) < HEADER_BYTES + length:
        return None
    answer = Answer(stream, opcode, flags, bytes(received[HEADER_BYTES : HEADER_BYTES + length]))
    del received[: HEADER_BYTES + length]
    return answer


class Client:
    """A connection over which anything can be sent. Answers are read as bare frames unless told otherwise."""

    def __init__(self, address, version=4, started=True, source=None, **options):
        self.version = version
        self.received = bytearray()
        self.socket = socket.create_connection(address, timeout=TIMEOUT_SECONDS, source_address=(source, 0) if source else None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if started:
            self.send(frame(STARTUP, startup(**options), version))
            if (answer := self.answer()) is None or answer.opcode != READY:
                raise BadAnswer(f"STARTUP was answered with {answer}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """Sends; False if the server has closed the connection."""
        try:
            self.socket.sendall(data)
            return True
        except CLOSED:
            return False

    def receive(self):
        """Waits for more bytes; False at the end of the connection."""
        try:
            data = self.socket.recv(1 << 16)
        except CLOSED:
            return False
        except TimeoutError:
            raise BadAnswer(f"nothing within {TIMEOUT_SECONDS} s") from None
        self.received += data
        return bool(data)

    def answer(self):
        """The next response frame, or None if the connection was closed."""
        while (answer := take_answer(self.received)) is None:
            if not self.receive():
                return None
        return answer

    def ask(self, opcode, body=b"", **options):
        """Sends one request and waits for its answer; None if the connection was closed."""
        self.send(frame(opcode, body, self.version, **options))
        return self.answer()

    def finish(self):
        """Ends the sending side and returns every answer up to the end of the connection."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        answers = []
        while (answer := self.answer()) is not None:
            answers.append(answer)
        return answers


class SegmentedClient(Client):
    """A connection of v5: behind STARTUP frames travel in segments without compression, in both directions."""

    def __init__(self, address):
        self.is_segmented, self.segments = False, bytearray()
        super().__init__(address, version=5, started=False)

    def ask(self, opcode, body=b"", **options):
        whole = frame(opcode, body, self.version, **options)
        self.send(segment(whole) if self.is_segmented else whole)
        answer = self.answer()
        self.is_segmented |= opcode == STARTUP and answer is not None and answer.opcode != ERROR
        return answer

    def receive(self):
        if not self.is_segmented:
            return super().receive()
        self.segments, self.received = self.received, self.segments
        try:
            is_open = super().receive()
        finally:
            self.segments, self.received = self.received, self.segments
        while len(self.segments) >= 6:
            length = int.from_bytes(self.segments[:3], "little") & 0x1FFFF
            if len(self.segments) < 6 + length + 4:
                break
            self.received += self.segments[6 : 6 + length]
            del self.segments[: 6 + length + 4]
        return is_open
