"""CQL types and literals of them, chosen at random from small pools, so that values meet again in other rows and in restrictions.

Invariant: what a pool of keys holds comes back as the bytes that were written: `docs/compatibility.md` says which values of clustering keys
come back as an equal one (decimals with trailing zeros, other NaNs, negative zeros).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class CqlType:
    """A type: its CQL, literals of it, and what may be done with columns of it."""

    name: str
    values: tuple
    kind: str = "native"
    # Types of the elements: of lists, sets and vectors one, of maps two, of tuples and user types all fields.
    elements: tuple = ()
    may_be_key: bool = True
    is_frozen: bool = True

    def literal(self, random):
        return random.choice(self.values)


def native(name, *values, may_be_key=True):
    return CqlType(name, tuple(map(str, values)), may_be_key=may_be_key)


NATIVES = (
    native("int", 0, 1, -1, 2, 7, 2147483647, -2147483648),
    native("bigint", 0, 1, -1, 3, 9223372036854775807, -9223372036854775808),
    native("smallint", 0, 1, -1, 32767, -32768),
    native("tinyint", 0, 1, -1, 127, -128),
    native("varint", 0, 1, -1, 128, -129, 10**30, -(10**30)),
    native("decimal", 0, 1, -1, "0.5", "-3.25", "1234567890123.75"),
    native("float", "0.0", "1.5", "-1.5", "NaN", "Infinity", "-Infinity", "3.4E38"),
    native("double", "0.0", "1.5", "-1.5", "NaN", "Infinity", "-Infinity", "1E-300"),
    native("text", "''", "'a'", "'ab'", "'b'", "'B'", "'é'", "'日本'", "'it''s'"),
    native("ascii", "''", "'a'", "'A'", "'z'"),
    native("blob", "0x", "0x00", "0x0001", "0xff", "0x6162"),
    native("boolean", "true", "false"),
    native(
        "uuid",
        "00000000-0000-0000-0000-000000000000",
        "8d5cf2c0-7e4a-4f0d-9a57-6e1b3a0b9f11",
        "ffffffff-ffff-4fff-bfff-ffffffffffff",
        "50554d6e-29bb-11e5-b345-feff819cdc9f",
    ),
    native(
        "timeuuid",
        "50554d6e-29bb-11e5-b345-feff819cdc9f",
        "60554d6e-29bb-11e5-b345-feff819cdc9f",
        "50554d6e-29bc-11e5-8000-000000000000",
    ),
    native("timestamp", 0, -1, 1700000000000, "'2024-02-29'", "'2011-02-03T04:05:06.789+0000'"),
    native("date", "'1970-01-01'", "'2024-02-29'", "'0001-01-01'", "'9999-12-31'"),
    native("time", "'00:00:00'", "'12:34:56.789012345'", "'23:59:59.999999999'"),
    native("inet", "'127.0.0.1'", "'10.0.0.1'", "'::1'", "'2001:db8::1'"),
    native("duration", "1d", "2h30m", "1mo2d3s", "-1y", "0s", may_be_key=False),
)


def choose_native(random, key=False):
    return random.choice([one for one in NATIVES if one.may_be_key or not key])


def some(random, element, count):
    return [element.literal(random) for _ in range(count)]


def list_of(random, element, frozen):
    values = tuple(f"[{', '.join(some(random, element, count))}]" for count in (0, 1, 2, 3))
    return collection("list", f"list<{element.name}>", values, (element,), frozen)


def set_of(random, element, frozen):
    values = tuple(f"{{{', '.join(some(random, element, count))}}}" for count in (0, 1, 2, 3))
    return collection("set", f"set<{element.name}>", values, (element,), frozen)


def map_of(random, key, value, frozen):
    """No literal names a key twice: which of its values Cassandra takes is not defined."""
    values = []
    for count in (0, 1, 2, 3):
        keys = sorted(set(some(random, key, count)))
        values.append(f"{{{', '.join(f'{one}: {value.literal(random)}' for one in keys)}}}")
    return collection("map", f"map<{key.name}, {value.name}>", tuple(values), (key, value), frozen)


def collection(kind, name, values, elements, frozen):
    return CqlType(f"frozen<{name}>" if frozen else name, values, kind, elements, may_be_key=frozen, is_frozen=frozen)


def tuple_of(random, fields):
    values = tuple(f"({', '.join(field.literal(random) for field in fields)})" for _ in range(4))
    return CqlType(f"frozen<tuple<{', '.join(field.name for field in fields)}>>", values, "tuple", tuple(fields))


def user_type(random, name, fields, frozen):
    """`fields`: names and types."""
    values = tuple(
        f"{{{', '.join(f'{field}: {type_.literal(random)}' for field, type_ in fields if random.random() < 0.8)}}}" for _ in range(4)
    )
    # A literal without a field is one of a map or a set.
    values = tuple(value for value in values if value != "{}") or (f"{{{fields[0][0]}: null}}",)
    text = f"frozen<{name}>" if frozen else name
    return CqlType(text, values, "user type", tuple(type_ for _, type_ in fields), may_be_key=frozen, is_frozen=frozen)


def vector_of(random, dimensions):
    element = next(one for one in NATIVES if one.name == "float")
    numbers = ("0.0", "1.5", "-1.5", "2.25")
    values = tuple(f"[{', '.join(random.choice(numbers) for _ in range(dimensions))}]" for _ in range(4))
    return CqlType(f"vector<float, {dimensions}>", values, "vector", (element,), may_be_key=False)


def choose_value_type(random, user_types):
    """Of a regular or static column."""
    draw = random.random()
    frozen = random.random() < 0.4
    if draw < 0.55:
        return choose_native(random)
    if draw < 0.65:
        return list_of(random, choose_native(random), frozen)
    if draw < 0.75:
        return set_of(random, choose_native(random, key=True), frozen)
    if draw < 0.85:
        return map_of(random, choose_native(random, key=True), choose_native(random), frozen)
    if draw < 0.9:
        return tuple_of(random, [choose_native(random) for _ in range(random.randint(1, 3))])
    if draw < 0.95 and user_types:
        name, fields = random.choice(user_types)
        return user_type(random, name, fields, frozen)
    return vector_of(random, random.randint(1, 3))


def choose_key_type(random):
    draw = random.random()
    if draw < 0.85:
        return choose_native(random, key=True)
    element = choose_native(random, key=True)
    if draw < 0.9:
        return list_of(random, element, frozen=True)
    if draw < 0.95:
        return set_of(random, element, frozen=True)
    return tuple_of(random, [element])
