"""A scenario from a seed: the statements that make a schema, and statements over it. The same seed gives the same scenario.

Invariants: writes name their timestamps where CQL lets them, so that the outcome does not depend on clocks; no TTL runs out within a run; most
statements are legal, some are not. `{keyspace}` in a statement stands for the name of the keyspace.
"""

from dataclasses import dataclass, field
from random import Random

import literals

TTL_SECONDS = 1_000_000


@dataclass(frozen=True)
class Statement:
    """A statement, and how it is executed."""

    cql: str
    page_size: int | None = None
    is_prepared: bool = False

    def document(self):
        return {key: value for key, value in vars(self).items() if value}


@dataclass
class Scenario:
    seed: int
    schema: list
    statements: list


@dataclass
class Column:
    name: str
    type: literals.CqlType
    kind: str
    descending: bool = False


@dataclass
class Table:
    name: str
    columns: list = field(default_factory=list)
    is_counter: bool = False

    def of(self, *kinds):
        return [column for column in self.columns if column.kind in kinds]


def scenario(seed):
    random = Random(seed)
    maker = Maker(random)
    schema = maker.schema()
    return Scenario(seed, schema, [maker.statement() for _ in range(random.randint(30, 70))])


class Maker:
    def __init__(self, random):
        self.random = random
        self.table = None
        self.timestamp = 1_000
        # Statements with conditions take the time of a clock: a scenario that has them looks at no timestamps.
        self.has_conditions = random.random() < 0.5

    # Schema

    def schema(self):
        random = self.random
        user_types, statements = [], []
        if random.random() < 0.4:
            fields = [(f"f{number}", literals.choose_native(random)) for number in range(random.randint(1, 3))]
            user_types.append(("u", fields))
            statements.append(f"CREATE TYPE {{keyspace}}.u ({', '.join(f'{name} {one.name}' for name, one in fields)})")
        table = self.table = Table("t", is_counter=random.random() < 0.06)
        for number in range(random.choice([1, 1, 1, 2])):
            table.columns.append(Column(f"p{number}", literals.choose_key_type(random), "partition"))
        for number in range(random.choice([0, 1, 1, 2, 3])):
            column = Column(f"c{number}", literals.choose_key_type(random), "clustering", random.random() < 0.3)
            table.columns.append(column)
        counter = literals.native("counter", 1, may_be_key=False)
        if table.of("clustering"):
            for number in range(random.choice([0, 0, 1, 2])):
                type_ = counter if table.is_counter else literals.choose_value_type(random, user_types)
                table.columns.append(Column(f"s{number}", type_, "static"))
        for number in range(random.choice([1, 2, 3])):
            type_ = counter if table.is_counter else literals.choose_value_type(random, user_types)
            table.columns.append(Column(f"v{number}", type_, "regular"))
        statements.append(self.create_table())
        if not table.is_counter and random.random() < 0.5:
            statements += self.indexes()
        return statements

    def create_table(self):
        table = self.table
        columns = [f"{one.name} {one.type.name}{' static' if one.kind == 'static' else ''}" for one in table.columns]
        key = f"({', '.join(one.name for one in table.of('partition'))})"
        clustering = table.of("clustering")
        key = ", ".join([key, *(one.name for one in clustering)])
        order = ", ".join(f"{one.name} {'DESC' if one.descending else 'ASC'}" for one in clustering)
        options = f" WITH CLUSTERING ORDER BY ({order})" if any(one.descending for one in clustering) else ""
        return f"CREATE TABLE {{keyspace}}.t ({', '.join(columns)}, PRIMARY KEY ({key})){options}"

    def indexes(self):
        random, statements = self.random, []
        columns = [one for one in self.table.columns if one.type.kind != "vector"]
        for column in random.sample(columns, min(len(columns), random.choice([1, 1, 2]))):
            target = column.name
            if column.type.kind in ("list", "set", "map"):
                parts = ["full"] if column.type.is_frozen else {"map": ["keys", "values", "entries"]}.get(column.type.kind, ["values"])
                target = f"{random.choice(parts)}({column.name})"
            using = random.choice(["", " USING 'sai'", " USING 'sai'"])
            statements.append(f"CREATE INDEX i_{column.name} ON {{keyspace}}.t ({target}){using}")
        return statements

    # Statements

    def statement(self):
        draw = self.random.random()
        if self.table.is_counter and draw < 0.5:
            return Statement(self.update_counter())
        if draw < 0.3:
            cql = self.insert()
        elif draw < 0.42:
            cql = self.update()
        elif draw < 0.5:
            cql = self.delete()
        elif draw < 0.53:
            cql = self.batch()
        else:
            page_size = self.random.choice([None, None, None, 1, 2, 3, 7])
            return Statement(self.select(), page_size, self.random.random() < 0.15)
        return Statement(cql, None, self.random.random() < 0.1)

    def literal(self, column):
        """A value for a column: mostly of its type."""
        draw = self.random.random()
        if draw < 0.015:
            return "null"
        if draw < 0.03:
            return literals.choose_native(self.random).literal(self.random)
        return column.type.literal(self.random)

    def is_conditional(self, chance):
        return self.has_conditions and self.random.random() < chance

    def using(self, with_ttl=True):
        self.timestamp += 1
        # Now and then an older write than one before it.
        stamp = self.timestamp if self.random.random() < 0.85 else self.timestamp - self.random.randint(1, 20)
        ttl = f" AND TTL {TTL_SECONDS}" if with_ttl and self.random.random() < 0.08 else ""
        return f" USING TIMESTAMP {stamp}{ttl}"

    def insert(self):
        random = self.random
        keys = self.table.of("partition", "clustering")
        others = [one for one in self.table.of("static", "regular") if random.random() < 0.75]
        if random.random() < 0.03:
            keys = random.sample(keys, len(keys) - 1)
        columns = keys + others
        values = [self.literal(one) if random.random() < 0.95 or one in keys else "null" for one in columns]
        end = " IF NOT EXISTS" if self.is_conditional(0.15) else self.using()
        names = ", ".join(one.name for one in columns)
        return f"INSERT INTO {{keyspace}}.t ({names}) VALUES ({', '.join(values)}){end}"

    def key_relations(self, whole_chance=0.93):
        """Relations that name one row, or, for a deletion, more."""
        keys = self.table.of("partition", "clustering")
        if self.random.random() > whole_chance:
            keys = keys[: self.random.randint(0, len(keys))]
        return " AND ".join(f"{one.name} = {self.literal(one)}" for one in keys) or f"{self.table.columns[0].name} = null"

    def assignment(self, column):
        random, type_, name = self.random, column.type, column.name
        value = self.literal(column)
        if type_.is_frozen or random.random() < 0.35:
            return f"{name} = {value}"
        if type_.kind == "user type":
            position = random.randrange(len(type_.elements))
            return f"{name}.f{position} = {type_.elements[position].literal(random)}"
        element = type_.elements[0].literal(random)
        if type_.kind == "map":
            changes = [f"{name}[{element}] = {type_.elements[1].literal(random)}", f"{name} = {name} - {{{element}}}"]
            return random.choice([*changes, f"{name} = {name} + {value}", f"{name} += {value}"])
        if type_.kind == "list":
            changes = [f"{name}[{random.randint(0, 2)}] = {element}", f"{name} = {value} + {name}"]
            return random.choice([*changes, f"{name} = {name} + {value}", f"{name} = {name} - {value}", f"{name} -= {value}"])
        return f"{name} = {name} {random.choice('+-')} {value}"

    def condition(self):
        random = self.random
        if random.random() < 0.35:
            return " IF EXISTS"
        columns = self.table.of("static", "regular")
        column = random.choice(columns)
        operator = random.choice(["=", "=", "!=", "<", ">=", "IN"])
        value = f"({self.literal(column)}, {self.literal(column)})" if operator == "IN" else self.literal(column)
        return f" IF {column.name} {operator} {value}"

    def update(self):
        random = self.random
        columns = self.table.of("static", "regular")
        chosen = random.sample(columns, random.randint(1, min(2, len(columns))))
        assignments = ", ".join(map(self.assignment, chosen))
        if self.is_conditional(0.3):
            return f"UPDATE {{keyspace}}.t SET {assignments} WHERE {self.key_relations()}{self.condition()}"
        return f"UPDATE {{keyspace}}.t{self.using()} SET {assignments} WHERE {self.key_relations()}"

    def update_counter(self):
        column = self.random.choice(self.table.of("static", "regular"))
        change = f"{column.name} = {column.name} {self.random.choice('+-')} {self.random.randint(0, 5)}"
        return f"UPDATE {{keyspace}}.t SET {change} WHERE {self.key_relations()}"

    def delete(self):
        random = self.random
        draw = random.random()
        columns = self.table.of("static", "regular")
        clustering = self.table.of("clustering")
        target, where = "", self.key_relations()
        if draw < 0.35:
            column = random.choice(columns)
            target = column.name
            if not column.type.is_frozen and column.type.kind in ("list", "map", "set") and random.random() < 0.5:
                element = random.randint(0, 2) if column.type.kind == "list" else column.type.elements[0].literal(random)
                target = f"{column.name}[{element}]"
        elif draw < 0.65 and clustering:
            where = self.restrictions(self.random.randint(0, len(clustering)), for_deletion=True)
        if self.is_conditional(0.2):
            return f"DELETE {target} FROM {{keyspace}}.t WHERE {where}{self.condition()}"
        return f"DELETE {target} FROM {{keyspace}}.t{self.using(with_ttl=False)} WHERE {where}"

    def batch(self):
        kinds = [self.insert, self.update, self.delete]
        statements = "; ".join(self.random.choice(kinds)() for _ in range(self.random.randint(1, 3)))
        return f"BEGIN {self.random.choice(['', 'UNLOGGED '])}BATCH {statements}; APPLY BATCH"

    # SELECT

    def restrictions(self, clustering_count, for_deletion=False):
        """The whole partition key, `clustering_count` clustering columns by equality, and a slice of the next."""
        random = self.random
        relations = []
        for column in self.table.of("partition"):
            if random.random() < 0.12:
                relations.append(f"{column.name} IN ({self.literal(column)}, {self.literal(column)})")
            else:
                relations.append(f"{column.name} = {self.literal(column)}")
        clustering = self.table.of("clustering")
        for column in clustering[:clustering_count]:
            if random.random() < 0.15:
                relations.append(f"{column.name} IN ({self.literal(column)}, {self.literal(column)})")
            else:
                relations.append(f"{column.name} = {self.literal(column)}")
        rest = clustering[clustering_count:]
        if rest and random.random() < 0.7:
            if len(rest) > 1 and random.random() < 0.4:
                names = ", ".join(one.name for one in rest)
                values = ", ".join(map(self.literal, rest[: random.randint(1, len(rest))]))
                relations.append(f"({names}) {random.choice(['<', '<=', '>', '>=', '='])} ({values})")
            else:
                operators = random.choice([["<"], ["<="], [">"], [">="], [">", "<"], [">=", "<="]])
                relations += [f"{rest[0].name} {operator} {self.literal(rest[0])}" for operator in operators]
        if for_deletion and random.random() < 0.05:
            random.shuffle(relations)
        return " AND ".join(relations)

    def filter(self):
        """A relation on any column."""
        random = self.random
        column = random.choice(self.table.columns)
        kind, name = column.type.kind, column.name
        if kind in ("list", "set", "map") and random.random() < 0.75:
            position = 1 if kind == "map" else 0
            choices = [f"{name} CONTAINS {column.type.elements[position].literal(random)}"]
            if kind == "map":
                choices.append(f"{name} CONTAINS KEY {column.type.elements[0].literal(random)}")
                choices.append(f"{name}[{column.type.elements[0].literal(random)}] = {column.type.elements[1].literal(random)}")
            return random.choice(choices)
        operator = random.choice(["=", "=", "=", "<", ">", "<=", ">=", "IN"])
        value = f"({self.literal(column)}, {self.literal(column)})" if operator == "IN" else self.literal(column)
        return f"{name} {operator} {value}"

    def selector(self, column):
        random, name = self.random, column.name
        draw = random.random()
        if draw < 0.6:
            return name
        choices = [f"toJson({name})", f"count({name})", f"min({name})", f"max({name})", f"cast({name} AS text)"]
        choices += [f"{name} AS alias_of_{name}", f"typeAsBlob({name})"]
        if not self.has_conditions:
            choices.append(f"writetime({name})")
        if column.type.kind == "map":
            choices.append(f"{name}[{column.type.elements[0].literal(random)}]")
        if column.type.kind == "user type":
            choices.append(f"{name}.f0")
        if column.type.name in ("int", "bigint", "double", "varint", "decimal", "smallint"):
            choices += [f"sum({name})", f"avg({name})", f"{name} + 1", f"{name} * 2", f"-{name}", f"cast({name} AS double)"]
        return random.choice(choices)

    def selection(self):
        random = self.random
        draw = random.random()
        if draw < 0.35:
            return "*"
        if draw < 0.4:
            return "JSON *"
        if draw < 0.45:
            return "count(*)"
        if draw < 0.52:
            return f"DISTINCT {', '.join(one.name for one in self.table.of('partition', random.choice(['partition', 'static'])))}"
        if draw < 0.56:
            return f"token({', '.join(one.name for one in self.table.of('partition'))}), {self.table.columns[0].name}"
        columns = random.sample(self.table.columns, random.randint(1, min(3, len(self.table.columns))))
        return ", ".join(map(self.selector, columns))

    def select(self):
        random = self.random
        relations = []
        clustering = self.table.of("clustering")
        draw = random.random()
        in_partition = draw < 0.55
        if in_partition:
            relations.append(self.restrictions(random.randint(0, len(clustering))))
        elif draw < 0.62:
            names = ", ".join(one.name for one in self.table.of("partition"))
            values = ", ".join(self.literal(one) for one in self.table.of("partition"))
            relations.append(f"token({names}) {random.choice(['<', '<=', '>', '>='])} token({values})")
        if random.random() < (0.2 if in_partition else 0.6):
            relations += [self.filter() for _ in range(random.choice([1, 1, 2]))]
        parts = [f"SELECT {self.selection()} FROM {{keyspace}}.t"]
        if relations:
            parts.append(f"WHERE {' AND '.join(relations)}")
        if random.random() < 0.1:
            keys = self.table.of("partition", "clustering")
            count = random.randint(1, len(keys))
            parts.append(f"GROUP BY {', '.join(one.name for one in keys[:count])}")
        if clustering and random.random() < (0.3 if in_partition else 0.04):
            backwards = random.random() < 0.6
            count = random.randint(1, len(clustering))
            order = [f"{one.name} {'DESC' if one.descending != backwards else 'ASC'}" for one in clustering[:count]]
            parts.append(f"ORDER BY {', '.join(order)}")
        if random.random() < 0.12:
            parts.append(f"PER PARTITION LIMIT {random.randint(1, 3)}")
        if random.random() < 0.25:
            parts.append(f"LIMIT {random.randint(1, 5)}")
        if random.random() < 0.7:
            parts.append("ALLOW FILTERING")
        return " ".join(parts)
