"""Settings: a wrong variable is refused with its name, and no message contains a secret."""

import pytest

from ai_tagger.settings import Settings
from apps.ai_tagger.tests.kit import Desk
from onerow import BadInput

MODEL = {"MODEL_URL": "https://api.example.com/v1"}


def settings_of(**variables: str) -> Settings:
    return Settings.of_environment({f"TAGGER_{name}": text for name, text in variables.items()})


def refused(**variables: str) -> str:
    """Return message and fix of the error; it names the last variable."""
    with pytest.raises(BadInput) as caught:
        settings_of(**variables)
    assert caught.value.field == f"TAGGER_{list(variables)[-1]}"
    return f"{caught.value}; {caught.value.fix}"


@pytest.mark.parametrize("name", ["API_KEY", "MODEL"])
def test_a_key_or_model_without_a_url_is_refused_and_not_tagged_offline(name: str) -> None:
    said = refused(**{name: "s3cret-value"})
    assert "set TAGGER_MODEL_URL" in said
    assert f"unset TAGGER_{name}" in said
    assert "s3cret" not in said
    assert settings_of(**MODEL, **{name: "s3cret-value"}).endpoint


@pytest.mark.parametrize(
    "url",
    [
        *("sqlite:///x.db", "mysql://u:sec@h/x", "hello", "postgresql+psycopg://h/x", "host=h password=sec"),
        *("postgresql://u:sec ret@h/x", "postgresql://u:sec@ret@h/x", "postgresql://u:sec/ret@h/x"),
        *("postgresql://u:sec%zz@h/x", "postgresql://h:sec/x", "postgres://[::1/x"),
    ],
)
def test_a_wrong_database_url_is_refused_without_its_content(url: str) -> None:
    said = refused(DATABASE_URL=url)
    assert "TAGGER_DATABASE_URL is not a PostgreSQL URL" in said
    assert "sec" not in said
    assert "ret@" not in said


@pytest.mark.parametrize(
    "url", ["postgresql://h/x", "postgres://u:p%40ss@h:5432/x", "postgresql://h1:1,h2:2/x", "postgresql:///x?host=/tmp"]
)
def test_a_database_url_is_taken(url: str) -> None:
    assert settings_of(DATABASE_URL=url).database_url == url


@pytest.mark.parametrize(
    "url",
    [
        *("api.example.com/v1", "ftp://h/v1", "http://", "http://:80/v1", "http://[::1/v1", "http://h:99999/v1"),
        *("http://h:x/v1", "http://h:0/v1", "http://h/v 1", "https://u:secret@h/v1", "https://h/v1?key=secret"),
    ],
)
def test_a_wrong_model_url_is_refused(url: str) -> None:
    assert "secret" not in refused(MODEL_URL=url)


def test_the_key_of_a_model_stands_in_its_own_variable() -> None:
    assert "TAGGER_API_KEY" in refused(MODEL_URL="https://u:p@h/v1")
    for key in ("two words", "two\nlines", "schlüssel"):
        assert key not in refused(**MODEL, API_KEY=key)


@pytest.mark.parametrize(
    "name, wrong, right",
    [
        ("TIMEOUT", ["0", "-1", "301", "nan", "inf", "soon"], ["0.5", "300"]),
        ("MODEL", ["m" * 201, "a\x1bb"], ["m" * 200]),
        ("INPUT_PRICE", ["-1", "1000000", "cheap"], ["0", "0.15", "999999"]),
    ],
)
def test_limits_of_a_models_settings(name: str, wrong: list[str], right: list[str]) -> None:
    for text in wrong:
        refused(**MODEL, **{name: text})
    for text in right:
        assert settings_of(**MODEL, **{name: text}).endpoint
    assert "from 0 to below 1,000,000" in refused(**MODEL, INPUT_PRICE="x")


def test_roles_that_cannot_be_granted_are_refused() -> None:
    for role in ("public", "pg_monitor", "none", "Ann"):
        refused(MEMBERS_ROLE=role)
        refused(SERVICE_ROLE=role)
    assert "differ" in refused(MEMBERS_ROLE="both", SERVICE_ROLE="both")


def test_an_endpoint_is_shown_with_host_and_port_only() -> None:
    endpoint = settings_of(MODEL_URL="http://localhost:8000/secret/v1", MODEL="m", API_KEY="k").endpoint
    assert str(endpoint) == "m at localhost:8000"


def test_a_wrong_variable_is_named_by_the_commands(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAGGER_RETRY_WAIT", "never")
    done = desk.run_worker()
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "TAGGER_RETRY_WAIT: can't read the duration 'never'" in done.stderr


@pytest.mark.parametrize("command", ["setup", "sync", "worker", "report", "posts", "retag --failed"])
def test_every_command_refuses_another_database(desk: Desk, command: str) -> None:
    done = desk.run(*command.split(), url="sqlite:///x.db")
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: TAGGER_DATABASE_URL is not a PostgreSQL URL")
