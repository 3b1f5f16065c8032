"""Plays scenarios against servers: each in a keyspace of its own, which is dropped again."""

from differences import accepted, differences, of_cassandra
from servers import scratch_keyspace


class Stage:
    """Two servers that get the same statements."""

    def __init__(self, cassandra, helenus, kinds):
        """`kinds`: the kinds of differences to look at."""
        self.servers = {"cassandra": cassandra, "helenus": helenus}
        self.kinds = kinds
        self.keyspaces = 0

    def answers(self, server, schema, statements):
        """What a server says to each statement of the schema, and then to each other one."""
        self.keyspaces += 1
        with scratch_keyspace(server, f"differential_{self.keyspaces}") as keyspace:
            yield from server.play_all([*schema, *statements], keyspace)

    def both(self, schema, statements):
        """Each statement with both answers: (statement, answer of Cassandra, answer of Helenus)."""
        answers = zip(*(self.answers(server, schema, statements) for server in self.servers.values()))
        for statement, (theirs, ours) in zip([*schema, *statements], answers):
            yield statement, of_cassandra(theirs), ours

    def differences(self, schema, statements):
        """The first difference of each statement that is not accepted: (kind, position, statement, answer of Cassandra, answer of Helenus)."""
        found = []
        for position, (statement, theirs, ours) in enumerate(self.both(schema, statements)):
            for kind in differences(theirs, ours):
                if accepted(kind, statement, theirs, ours) is not None:
                    if kind == "error" and not statement.cql.startswith("SELECT"):
                        # From here on the tables have other rows.
                        return found
                elif kind in self.kinds:
                    found.append((kind, position, statement, theirs, ours))
                    break
        return found

    def shrink(self, schema, statements, kind):
        """Fewer statements whose last one still differs in the same way: halves, quarters and so on are left out while it does."""
        last = statements[-1]
        kept = statements[:-1]
        # What no row decides, such as most errors, differs alone.
        size = max(1, len(kept))
        while kept:
            position = 0
            while position < len(kept):
                fewer = kept[:position] + kept[position + size :]
                if any(one[0] == kind and one[2] is last for one in self.differences(schema, [*fewer, last])):
                    kept = fewer
                else:
                    position += size
            if size == 1:
                break
            size //= 2
        return [*kept, last]
