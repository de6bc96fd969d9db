"""Secrets are masked in streams, however these are cut, and no other text is lost."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onerow import BadInput
from onerow.engine.output.lines import LONGEST_LINE, Lines, storable
from onerow.engine.output.masking import MASK, Masker

SECRETS = ["hunter2-hunter2", 'qu"ote\\d $ecret', "line-one-of-it\nline-two-of-it", "비밀번호-하나"]
masker = Masker(SECRETS, [r"internal-\d{4,8}"])

KEYS = [
    "sk-proj-abcdefghijklmnop1234",
    "sk_live_abcdefghijklmnop",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_11ABCDEFG0123456789_abcdefghij",
    "glpat-abcdefghijklmnopqrst",
    "xoxb-123456789012-abcdefghij",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "Authorization: Bearer abcdef0123456789",
    "authorization: basic dXNlcjpwYXNzd29yZA==",
    "postgresql://ann:s3cr3t-word@db.example/app",
    "PASSWORD=s3cr3t-word",
    '{"api_key": "s3cr3t-word"}',
    "client_secret: 's3cr3t-word'",
    "https://s3cr3t-word-of-a-user@host/a.mp4",
    "https://s3cr3t-word-of-a-user:@host/a.mp4",
    "GET /a?key=s3cr3t HTTP/1.1",
    "https://host/a?v=1&key=s3cr3t#t=10",
    'href="https://host/a?v=1&amp;sig=s3cr3t"',
    "https://host/a?X-Amz-Credential=s3cr3t&X-Amz-Signature=s3cr3t",
    "https://host/?pass=s3cr3t&accessToken=s3cr3t&auth_token=s3cr3t",
]
PLAIN = [
    "the token was fine",
    "password: ",
    "https://example.org/a:b",
    "sk-short",
    "a basic idea of the thing",
    "asia and akia",
    "mailto:ann@example.org",
    "12:30 secretary",
    "https://ann@example.org/a",
    "https://example.org/?monkey=1&keyboard=us&design=2&tokens=3&v=abc",
    "is it the key = value?",
]


def streamed(pieces: list[str], masker: Masker = masker, **sizes: int) -> list[str]:
    lines = Lines(masker, **sizes)
    return [line for piece in pieces for line in lines.feed(piece)] + lines.end()


@pytest.mark.parametrize("text", KEYS)
def test_text_that_looks_like_a_key_is_masked(text: str) -> None:
    masked = masker.text(f"before {text} after")
    assert MASK in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert not re.search(r"s3cr3t|abcdefgh|IOSFOD|SyA123|dXNlcj|dozjg", masked)


@pytest.mark.parametrize("text", PLAIN)
def test_text_that_only_resembles_a_key_is_kept(text: str) -> None:
    assert masker.text(text) == text


def test_the_value_of_a_secret_is_masked_in_every_form_in_which_programs_print_it() -> None:
    for secret in SECRETS:
        shown = [secret, repr(secret), json.dumps(secret), f"https://x/?q={secret}"]
        for text in shown:
            masked = masker.text(text)
            assert not any(part in masked for part in ("hunter2", "ecret", "line-one", "line-two", "비밀번호"))
    assert masker.text("https://x/?k=qu%22ote%5Cd%20%24ecret") == f"https://x/?k={MASK}"
    assert masker.text("see internal-12345, not internal-1") == f"see {MASK}, not internal-1"


def test_only_named_variables_and_those_with_secret_names_are_masked() -> None:
    environment = {
        "DB_PASSWORD": "abcdefgh",
        "PGPASSWORD": "p@ss/w:rd",  # by which libpq gets one
        "MY_WORD": "mellon",
        "KEYBOARD": "qwertyuiop",
        "API_KEY": "short",
    }
    found = Masker.of_environment(["MY_WORD", "MISSING"], (), environment)
    assert found.text("abcdefgh p@ss/w:rd mellon qwertyuiop short") == f"{MASK} {MASK} {MASK} qwertyuiop short"


def test_an_invalid_pattern_is_refused() -> None:
    with pytest.raises(BadInput, match="regular expression"):
        Masker([], ["("])


def test_values_are_masked_wherever_they_hold_text() -> None:
    payload = {"url": "https://ann:pw@x/", "list": ["hunter2-hunter2", 1], "db_password": "x", "n": 3, "none": None}
    assert masker.value(payload) == {
        "url": f"https://ann:{MASK}@x/", "list": [MASK, 1], "db_password": MASK, "n": 3, "none": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["awsAccessKeyId", "privateKey", "private-key", "passphrase", "Authorization", "credentials", "db_pwd"]
)
def test_a_field_with_the_name_of_a_secret_is_masked_in_every_spelling(name: str) -> None:
    assert masker.value({"list": [{name: ["short", {"n": 5}]}]}) == {"list": [{name: [MASK, {"n": 5}]}]}
    assert masker.value({"author": "Ann", "passenger": "Ben"}) == {"author": "Ann", "passenger": "Ben"}


words = st.sampled_from([*SECRETS, *KEYS, *PLAIN, "\n", "\r\n", " ", "é", "🎬", "x" * 30]) | st.text(max_size=10)


@st.composite
def cut_texts(draw: Any) -> tuple[str, list[str]]:
    text = "".join(draw(st.lists(words, max_size=12))).replace("\r", "")
    borders = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return text, [text[a:b] for a, b in zip([0, *borders], [*borders, len(text)], strict=True)]


@given(cut_texts())
def test_masking_does_not_depend_on_where_the_stream_is_cut(cut: tuple[str, list[str]]) -> None:
    text, pieces = cut
    found = streamed(pieces)
    assert found == streamed(list(text))
    assert "\n".join(found) == masker.text(storable("".join(pieces))).removesuffix("\n")


@pytest.mark.parametrize("secret", [SECRETS[0], SECRETS[3], *KEYS])
def test_a_secret_is_masked_at_every_chunk_border(secret: str) -> None:
    text = f"a {secret} b\n"
    whole = masker.text(text)
    assert whole != text
    for border in range(len(text) + 1):
        assert "\n".join(streamed([text[:border], text[border:]])) + "\n" == whole


@given(st.integers(0, 30_000), st.sampled_from([SECRETS[0], KEYS[0], KEYS[11]]), st.integers(1, 5_000))
def test_a_secret_at_the_cut_of_an_overlong_line_is_masked(at: int, secret: str, size: int) -> None:
    text = "x" * at + f" {secret} " + "y" * (40_000 - at)
    found = streamed([text[i : i + size] for i in range(0, len(text), size)], longest=1000, window=1)
    assert "".join(found) == masker.text(text)
    assert max(map(len, found)) <= 1000


def test_an_overlong_line_is_kept_in_pieces_with_bounded_memory() -> None:
    lines = Lines(masker)
    found = held = 0
    for _ in range(100):
        found += sum(map(len, lines.feed("z" * 65_536)))
        held = max(held, len(lines.unfinished))
    found += sum(len(line) for line in lines.end())
    assert found == 100 * 65_536
    assert held < 200_000


def test_only_the_last_state_of_a_progress_bar_is_kept() -> None:
    lines = Lines(masker)
    assert [line for percent in range(100) for line in lines.feed(f"\r{percent}%")] == []
    assert lines.unfinished == "99%"
    assert lines.feed("\r100%\r\n") == ["100%"]
    assert lines.feed("a\r") + lines.feed("\nb\n") == ["a", "b"]


def test_characters_that_no_store_can_keep_are_replaced() -> None:
    assert streamed(["a\x00b\ud800c\n"]) == ["a�b?c"]


def test_a_long_line_is_split() -> None:
    assert [len(line) for line in streamed(["x" * (2 * LONGEST_LINE + 1) + "\n"])] == [LONGEST_LINE, LONGEST_LINE, 1]
