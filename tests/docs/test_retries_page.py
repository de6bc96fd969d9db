"""docs/retries.md states defaults and error classes: every one of them is compared with the code."""

import errno
import re
from pathlib import Path

import pytest

from onerow import BadPayload, Permanent, RateLimited, Retry, WaitExpired
from onerow.core.durations import parse_duration
from onerow.core.failure import ERROR_CLASSES, EXIT_CLASSES, classify
from onerow.core.plan import DEFAULT_LEASE, DEFAULT_TIMEOUT
from onerow.core.retry import RETRIED

PAGE = (Path(__file__).parents[2] / "docs" / "retries.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table after a text of the page."""
    table = PAGE.partition(heading)[2].partition("| --- |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[1:]]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_defaults_are_those_of_the_code() -> None:
    said = {words(option)[0]: words(default)[0].strip('"') for option, default, _ in rows("## Defaults of a phase")}
    policy = Retry()
    assert said == {
        "retry": f"Retry({policy.max_retries})",
        "Retry(wait=…)": policy.wait,
        "Retry(factor=…)": f"{policy.factor:g}",
        "Retry(jitter=…)": f"{policy.jitter:g}",
        "Retry(max_rescues=…)": str(policy.max_rescues),
        "timeout": "15m",
        "lease": "30s",
    }
    assert (parse_duration("15m"), parse_duration("30s")) == (DEFAULT_TIMEOUT, DEFAULT_LEASE)


def test_every_error_class_is_listed_with_whether_it_is_retried() -> None:
    said = {words(name)[0]: retried == "yes" for name, retried, _ in rows("## Error classes")}
    assert said == {name: name in RETRIED for name in ERROR_CLASSES}


BY_EXCEPTION = {
    "onerow.Permanent": Permanent("no"),
    "onerow.BadPayload": BadPayload("no"),
    "onerow.RateLimited": RateLimited("1s"),
    "onerow.WaitExpired": WaitExpired("late"),
    "MemoryError": MemoryError(),
    'RuntimeError("can\'t start new thread")': RuntimeError("can't start new thread"),
    "PermissionError": PermissionError(),
    "TimeoutError": TimeoutError(),
    "ConnectionError": ConnectionResetError(),
    "EOFError": EOFError(),
}


def test_each_exception_has_the_class_that_the_page_says() -> None:
    checked = set()
    for left, right in rows("## From exception to class"):
        if not words(right):
            continue  # "by code", "by name": tables of their own
        (expected,) = words(right)
        for name in words(left):
            if name in BY_EXCEPTION:
                assert classify(BY_EXCEPTION[name]).error_class == expected, name
                checked.add(name)
        for code in re.findall(r"\bE[A-Z]{4,}\b", left):
            assert classify(OSError(getattr(errno, code), "no")).error_class == expected, code
            checked.add(code)
    assert checked >= BY_EXCEPTION.keys() | {"ENOSPC", "EHOSTUNREACH"}
    assert classify(LookupError()).error_class == "unknown"


class ServiceError(Exception):
    def __init__(self, code: int) -> None:
        self.status_code = code


@pytest.mark.parametrize(
    "code, row",
    [(401, 0), (403, 0), (408, 1), (425, 1), (500, 1), (503, 1), (429, 2), (400, 3), (404, 3), (422, 3)],
)
def test_each_http_code_has_the_class_that_the_page_says(code: int, row: int) -> None:
    assert [classify(ServiceError(code)).error_class] == words(rows("**HTTP.**")[row][1])


def test_each_name_has_the_class_that_the_page_says() -> None:
    listed = {name: words(left)[0] for left, right in rows("**Names.**") for name in words(right)}
    assert len(listed) > 20
    for name, expected in listed.items():
        assert classify(type(name, (Exception,), {})()).error_class == expected, name


def test_each_exit_code_of_a_command_has_the_class_that_the_page_says() -> None:
    paragraph = PAGE.partition("**Commands.**")[2].partition("every other code")[0].partition("decides:")[2]
    said = {
        int(code): words(part)[0] for part in paragraph.split(";") if words(part) for code in re.findall(r"\d+", part)
    }
    assert said == EXIT_CLASSES
