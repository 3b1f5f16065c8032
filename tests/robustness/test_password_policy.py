"""What new passwords must be like, and passwords that the node makes."""

import pytest
from cassandra import InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from conftest import driver_session, new_node
from test_administration import command

STRONG = "aB3$kQ9!xWzv"
POLICY = {
    "validator_class_name": "CassandraPasswordValidator",
    "generator_class_name": "CassandraPasswordGenerator",
    "detailed_messages": False,
}


def settings(**policy):
    return {"authenticator": "PasswordAuthenticator", "password_policy": policy}


def login(name, password):
    return {"auth_provider": PlainTextAuthProvider(name, password)}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    words = tmp_path_factory.mktemp("words") / "dictionary"
    words.write_text(f"hunter2\n{STRONG}word\n")
    with new_node(settings=settings(dictionary=str(words), **POLICY)) as running:
        yield running


@pytest.fixture(scope="module")
def root(node):
    arguments = ("admin", "create-superuser", "anna", "--data-dir", node.data_dir)
    refused = command(*arguments, stdin="secret\n")
    assert refused[0] != 0 and "8 or more characters" in refused[1] + refused[2], refused
    made = command(*arguments, stdin=f"{STRONG}\n")
    assert made[0] == 0, made
    with driver_session(node, **login("anna", STRONG)) as session:
        session.execute("CREATE ROLE ben WITH LOGIN = true AND PASSWORD = 'Zz9$mmKq!02x'")
        yield session


@pytest.mark.parametrize(
    ("password", "reason"),
    [
        ("short", "Password must be 8 or more characters in length."),
        ("onlyletters", "Password matches 1 of 4 character rules, but 3 are required."),
        ("aB3$ kQ9!xWzv", "whitespace"),
        ("aB3$45678xWzv", "illegal numerical sequence '45678'"),
        (f"{STRONG}word", "dictionary word"),
    ],
)
@pytest.mark.parametrize("statement", ["CREATE ROLE weak WITH PASSWORD = '{}'", "ALTER ROLE ben WITH PASSWORD = '{}'"])
def test_weak_passwords_are_refused(root, statement, password, reason):
    with pytest.raises(InvalidRequest, match="Guardrail password_policy violated: Password was not set") as error:
        root.execute(statement.format(password))
    assert reason in str(error.value)
    assert "weak" not in [row.role for row in root.execute("LIST ROLES")]


def test_a_password_between_the_bounds_is_set_with_a_warning(root, node):
    future = root.execute_async("CREATE ROLE middling WITH LOGIN = true AND PASSWORD = 'aB3$kQ9!'")
    future.result()
    assert "Password must be 12 or more characters in length." in future.warnings[0]
    with driver_session(node, **login("middling", "aB3$kQ9!")) as session:
        assert session.execute("SELECT key FROM system.local").one()


def test_only_superusers_hear_what_is_wrong(root, node):
    with (
        driver_session(node, **login("ben", "Zz9$mmKq!02x")) as session,
        pytest.raises(InvalidRequest, match="GENERATED PASSWORD") as error,
    ):
        session.execute("ALTER ROLE ben WITH PASSWORD = 'short'")
    assert "8 or more" not in str(error.value)


def test_a_hash_is_not_looked_at(root, node):
    root.execute("CREATE ROLE old WITH LOGIN = true AND PASSWORD = 'Old9$mmKq!02x'")
    stored = root.execute("SELECT salted_hash FROM system_auth.roles WHERE role = 'old'").one().salted_hash
    root.execute(f"CREATE ROLE copy WITH LOGIN = true AND HASHED PASSWORD = '{stored}'")
    with driver_session(node, **login("copy", "Old9$mmKq!02x")) as session:
        assert session.execute("SELECT key FROM system.local").one()


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("made", "CREATE ROLE made WITH GENERATED PASSWORD AND LOGIN = true"),
        ("made_user", "CREATE USER made_user WITH GENERATED PASSWORD"),
        ("made", "ALTER ROLE made WITH GENERATED PASSWORD"),
    ],
)
def test_a_generated_password_is_told_once_and_works(root, node, name, statement):
    password = root.execute(statement).one().generated_password
    assert len(password) == 12
    with driver_session(node, **login(name, password)) as session:
        assert session.execute("SELECT key FROM system.local").one()


def test_no_password_is_told_for_a_role_that_is_there_already(root):
    root.execute("CREATE ROLE there")
    assert not root.execute("CREATE ROLE IF NOT EXISTS there WITH GENERATED PASSWORD").all()
    assert not root.execute("ALTER ROLE IF EXISTS absent WITH GENERATED PASSWORD").all()


def test_without_a_policy_passwords_are_free_and_none_is_made():
    with new_node(settings={"authenticator": "PasswordAuthenticator"}) as node:
        made = command("admin", "create-superuser", "anna", "--data-dir", node.data_dir, stdin="a\n")
        assert made[0] == 0, made
        with driver_session(node, **login("anna", "a")) as session:
            session.execute("CREATE ROLE ben WITH PASSWORD = 'b'")
            with pytest.raises(InvalidRequest, match="generator_class_name"):
                session.execute("ALTER ROLE ben WITH GENERATED PASSWORD")
