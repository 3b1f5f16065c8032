"""Sessions that return what a server said as it said it: rows as bytes, errors as code and text."""

from contextlib import contextmanager

from cassandra import RequestExecutionException, RequestValidationException, protocol
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import RoundRobinPolicy
from cassandra.query import SimpleStatement, tuple_factory

REQUEST_TIMEOUT_SECONDS = 60
# So many statements after each other find what was written before in the memtable, the next ones in files.
STATEMENTS_PER_FLUSH = 8
# What the driver makes of an error that a server has answered. Anything else, such as no answer in time, ends a run.
ERRORS = (protocol.ErrorMessage, RequestExecutionException, RequestValidationException)


class RawResult(protocol.ResultMessage):
    """A RESULT whose values stay bytes."""

    def recv_results_rows(self, f, protocol_version, user_type_map, result_metadata, column_encryption_policy):
        self.recv_results_metadata(f, user_type_map)
        columns = self.column_metadata or result_metadata
        count = protocol.read_int(f)
        self.column_names = [column[2] for column in columns]
        self.column_types = [column[3] for column in columns]
        self.parsed_rows = [tuple(self.recv_row(f, len(columns))) for _ in range(count)]


class RawProtocol(protocol._ProtocolHandler):
    message_types_by_opcode = {**protocol._ProtocolHandler.message_types_by_opcode, RawResult.opcode: RawResult}


class Server:
    """A connection to a server that runs."""

    def __init__(self, name, host, port, flush=None):
        """`flush`: writes the rows of a keyspace, whose name it gets, into files."""
        self.name, self.flush = name, flush
        profile = ExecutionProfile(
            load_balancing_policy=RoundRobinPolicy(), request_timeout=REQUEST_TIMEOUT_SECONDS, row_factory=tuple_factory
        )
        self.cluster = Cluster(
            [host],
            port=port,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            schema_metadata_enabled=False,
            token_metadata_enabled=False,
            connect_timeout=REQUEST_TIMEOUT_SECONDS,
            control_connection_timeout=REQUEST_TIMEOUT_SECONDS,
        )
        self.session = self.cluster.connect()
        self.session.client_protocol_handler = RawProtocol
        self.session.default_fetch_size = 5_000

    def close(self):
        self.cluster.shutdown()

    def setup(self, cql):
        """A statement that has to succeed."""
        self.session.execute(cql)

    def play_all(self, statements, keyspace):
        """The answers to statements one after the other. Now and then what they have written goes into files."""
        for number, statement in enumerate(statements, start=1):
            yield self.play(statement, keyspace)
            if self.flush and number % STATEMENTS_PER_FLUSH == 0:
                self.flush(keyspace)

    def play(self, statement, keyspace):
        """The answer to a statement as a document: columns, rows of hexadecimal texts, rows of each page; or the error."""
        cql = statement.cql.replace("{keyspace}", keyspace)
        try:
            if statement.is_prepared:
                prepared = self.session.prepare(cql)
                executed = prepared.bind([])
                executed.fetch_size = statement.page_size
            else:
                executed = SimpleStatement(cql, fetch_size=statement.page_size)
            result = self.session.execute(executed)
            return answer(result)
        except ERRORS as error:
            return error_answer(error, keyspace)
        except NoHostAvailable as error:
            # The driver asks another host after some errors, and there is none.
            answered = [one for one in error.errors.values() if isinstance(one, ERRORS)]
            if not answered:
                raise
            return error_answer(answered[0], keyspace)


@contextmanager
def scratch_keyspace(server, name):
    """A keyspace for a scenario, dropped at the end."""
    server.setup(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    try:
        yield name
    finally:
        server.setup(f"DROP KEYSPACE {name}")


def answer(result):
    if not result.column_names:
        return {}
    rows, pages = [], []
    columns = [[name, type_.cql_parameterized_type()] for name, type_ in zip(result.column_names, result.column_types)]
    while True:
        page = list(result.current_rows)
        pages.append(len(page))
        rows += [[None if value is None else value.hex() for value in row] for row in page]
        if not result.has_more_pages:
            return {"columns": columns, "rows": rows, "pages": pages}
        result.fetch_next_page()


def error_answer(error, keyspace):
    return {"error": type(error).__name__, "message": error_text(error).replace(keyspace, "{keyspace}")}


def error_text(error):
    """What the server said: the driver wraps it in words of its own."""
    text = getattr(error, "message", None)
    if not isinstance(text, str):
        text = str(error)
    return text.split('message="', 1)[-1].removesuffix('"')
