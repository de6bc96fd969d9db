"""Catalogues: every text of the pages has a translation in every language, with the same placeholders."""

import re
from importlib.resources import files
from typing import get_args

import msgspec
import pytest

from onerow import Queue
from onerow.core.plan import Kind
from onerow.core.query import KEYS
from onerow.core.scaling import Outcome
from onerow.core.status import Status
from onerow.engine.views import Views
from onerow.web.acts import CONTROL_ACTS, NAMED_ACTS, TASK_ACTS, ControlAct, NamedAct, TaskAct
from onerow.web.pages import acting, basic, rendering, screens, task, tasks
from onerow.web.pages.language import LANGUAGES, choose, language
from onerow.web.pages.sentences import SENTENCES, sentence
from onerow.web.security.roles import ROLE_NAMES
from tests.web.pages.kit import fill

_TEXT = re.compile(r"""_\(\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\s*[,)]""")
_PLURAL = re.compile(r"""(?:_n|plural)\(\s*['"]([^'"]*)['"],\s*['"]([^'"]*)['"]""")
_PYTHON = re.compile(r"""translate\(\s*"([^"]*)\"""")


def texts() -> set[str]:
    """Return every text that is translated: those in the templates, and those that the templates get as values."""
    found: set[str] = set()
    root = files("onerow.web")
    for each in (root / "templates").iterdir():
        source = each.read_text(encoding="utf-8")
        found |= {one or other for one, other in _TEXT.findall(source)}
        found |= {text for pair in _PLURAL.findall(source) for text in pair}
    for each in (root / "pages").iterdir():
        if each.name.endswith(".py"):
            source = each.read_text(encoding="utf-8")
            found |= set(_PYTHON.findall(source)) | {text for pair in _PLURAL.findall(source) for text in pair}
    found |= {title for _, title in rendering.NAV} | {text for _, text in basic.KEY_LIST}
    found |= {page.title for page in (*screens.SCREENS, *tasks.TASK_LISTS, task.TASK)}
    found |= set(tasks.COLUMNS) | set(task.TABS.values()) | {status.value for status in Status} | set(ROLE_NAMES)
    found |= set(acting.LABELS.values()) | set(KEYS.values())
    acts: list[TaskAct | ControlAct | NamedAct] = [*TASK_ACTS.values(), *CONTROL_ACTS.values(), *NAMED_ACTS.values()]
    for act in acts:
        found.add(act.summary)
        for field in msgspec.structs.fields(act.arguments):
            shown = acting.field_of(field, [])
            found |= {shown.label, shown.hint} - {""}
    found |= set(get_args(Outcome)) | {"paused", "concurrency", "key", "rate"}  # of the scaling decision
    found |= set(SENTENCES)
    return found | set(get_args(Kind))


@pytest.mark.parametrize("code", [code for code in LANGUAGES if code != "en"])
def test_every_text_has_a_translation_with_the_same_placeholders(code: str) -> None:
    catalogue = msgspec.json.decode(
        (files("onerow.web") / "locales" / f"{code}.json").read_bytes(), type=dict[str, str]
    )
    assert texts() - set(catalogue) == set()
    for text, translated in catalogue.items():
        assert sorted(re.findall(r"\{\w+\}", text)) == sorted(re.findall(r"\{\w+\}", translated)), text
        assert translated.strip()


def test_all_catalogues_have_the_same_keys() -> None:
    root = files("onerow.web") / "locales"
    keys = [set(msgspec.json.decode(each.read_bytes())) for each in root.iterdir() if each.name.endswith(".json")]
    assert len(keys) == len(LANGUAGES) - 1
    assert all(each == keys[0] for each in keys)


def test_plurals_and_values_are_filled_in() -> None:
    assert language("en").plural("1 task", "{n} tasks", 1) == "1 task"
    assert language("en").plural("1 task", "{n} tasks", 1200) == "1,200 tasks"
    assert language("ko").plural("1 task", "{n} tasks", 3) == "작업 3개"
    assert language("zh-Hant")("no such text in any catalogue") == "no such text in any catalogue"


@pytest.mark.parametrize(
    "header, code",
    [
        ("ko-KR,ko;q=0.9", "ko"), ("zh-TW", "zh-Hant"), ("zh-CN,zh;q=0.9", "zh-Hant"), ("fr,en;q=0.5", "en"),
        ("fr;q=0.9,ko;q=0.4", "ko"), ("", "en"), (";;;q=x,,", "en"), ("de", "en"),
    ],
)  # fmt: skip
def test_the_language_is_the_first_known_one_that_the_browser_accepts(header: str, code: str) -> None:
    assert choose(None, None, header) == code
    assert choose("ko", "en", header) == "ko"
    assert choose("xx", "zh-Hant", header) == "zh-Hant"


def test_sentences_of_the_engine_are_translated_with_their_values(sqlite_url: str) -> None:
    queue = Queue(sqlite_url)
    try:
        ids = fill(queue, "潮汐 {n}: <b>")
        views = Views(queue)
        said = [each.what for each in views.findings()] + [views.why(task_id).sentence for task_id in ids.values()]
        assert len(said) >= 10
        for text in said:
            for code in ("ko", "zh-Hant"):
                assert sentence(code, text) != text, text
            assert sentence("en", text) == text
    finally:
        queue.close()
    assert sentence("ko", "1 task failed in clips.video") == "clips.video에서 작업 1개가 실패했습니다"
    assert sentence("ko", "1,234 tasks failed in clips.video") == "clips.video에서 작업 1,234개가 실패했습니다"
    assert sentence("ko", "a sentence that is not known") == "a sentence that is not known"
