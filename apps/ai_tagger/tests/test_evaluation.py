"""The labelled posts, the offline tagger, and the figures in the README."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from ai_tagger.cli import main
from ai_tagger.evaluation import LANGUAGES, evaluate, labelled
from ai_tagger.offline.characters import traditional
from ai_tagger.offline.tagger import tags_of, words
from ai_tagger.tags import TAGS

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.mark.contract("The labelled set has at least 200 posts in three languages, half of it held out.")
def test_the_labelled_posts_are_valid_and_no_post_is_in_both_halves() -> None:
    held_out, development = labelled("held_out"), labelled("development")
    assert len(held_out) == len(development) == 120
    for half in (held_out, development):
        assert {language: sum(post.language == language for post in half) for language in LANGUAGES} == dict.fromkeys(
            LANGUAGES, 40
        )
        assert {tag for post in half for tag in post.tags} == set(TAGS)
    assert not {post.text for post in held_out} & {post.text for post in development}


@pytest.mark.contract("Precision and recall per language are in the README beside a majority and a keyword baseline.")
def test_the_figures_in_the_readme_are_those_of_the_command() -> None:
    printed = CliRunner().invoke(main, ["evaluate"]).output
    assert printed.count("\n") == 2 + 9
    assert printed in README


def test_the_tagger_is_better_than_both_baselines_in_each_language() -> None:
    scores = {(score.language, score.method): score for score in evaluate("held_out")}
    for language in LANGUAGES:
        tagger = scores[language, "offline tagger"]
        assert tagger.f1 > scores[language, "keywords"].f1 > scores[language, "majority"].f1
        assert min(tagger.precision, tagger.recall) > 0.8


def test_each_tag_has_words_in_each_language_and_no_word_twice() -> None:
    for tag in TAGS:
        for language in LANGUAGES:
            listed = words(tag, language)
            assert len(listed) >= 15, (tag, language)
            assert len(listed) == len(set(listed)), (tag, language, sorted({w for w in listed if listed.count(w) > 1}))


def test_simplified_characters_are_understood() -> None:
    assert traditional("电脑 餐厅") == "電腦 餐廳"
    assert tags_of("昨天去看了电影 音乐很好听", TAGS) == ("entertainment",)
    assert tags_of("", TAGS) == ()
