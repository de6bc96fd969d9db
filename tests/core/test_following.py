"""The next phase of a task when this process's code and the published definition differ."""

import pytest

from onerow.core.plan import PhasePlan, Plan, followed


def plan(*names: str, **renamed: str) -> Plan:
    return Plan(
        name="orders",
        phases=tuple(PhasePlan(name=name, renamed_from=(renamed[name],) if name in renamed else ()) for name in names),
    )


@pytest.mark.parametrize(
    "own, published, here, follows",
    [
        ("a b", "a b c", "b", "c"),  # added at the end
        ("a c", "a b c", "a", "b"),  # added in the middle
        ("b", "a b", "b", None),  # added in front: the task has started already
        ("a b c", "a c", "a", "c"),  # removed
        ("a b c", "a c", "b", "c"),  # removed while the task was at it
        ("a b", "a", "b", None),  # removed at the end
        ("a b c d", "a x d", "b", "x"),  # replaced: no published phase is skipped, no removed one is entered
        ("a b c d", "a x d", "c", "x"),
        ("a", "b", "a", "b"),  # nothing in common
        ("a b", "a b", "b", None),
    ],
)
def test_a_task_continues_with_the_published_definition(
    own: str, published: str, here: str, follows: str | None
) -> None:
    found = followed(plan(*own.split()), plan(*published.split())).after(here)
    assert (found and found.name) == follows


def test_a_former_name_has_the_position_of_its_phase() -> None:
    both = followed(plan("a", "b"), plan("a", "b2", "c", b2="b"))
    assert [phase.name for phase in both.phases] == ["a", "b2", "c"]
    after = both.after("b")
    assert after is not None
    assert after.name == "c"


def test_an_equal_definition_is_returned_unchanged() -> None:
    own = plan("a", "b")
    assert followed(own, plan("a", "b")) is own


def test_no_task_starts_at_a_removed_phase() -> None:
    assert followed(plan("old", "b"), plan("b")).first.name == "b"


def test_a_rollback_does_not_rename_restored_phases() -> None:
    """A phase of newer code whose former name is a published phase doesn't replace that phase."""
    both = followed(plan("b2", b2="b"), plan("b"))
    assert both.phase("b").name == "b"
    assert all(not phase.renamed_from for phase in both.phases)
