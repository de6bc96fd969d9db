"""The schedule of faults follows from the seed, and shrinks to the faults that matter."""

from pathlib import Path

import pytest

from onerow.core.errors import BadInput
from onerow.soak.run import Soak
from onerow.soak.schedule import DEFAULT, FAULTS, Fault, parse_faults, plan, read_plan, shrink, write_plan


def test_a_seed_gives_the_same_faults_and_another_seed_gives_others() -> None:
    counts = parse_faults(DEFAULT)
    assert plan(1, counts) == plan(1, counts)
    assert plan(1, counts) != plan(2, counts)
    assert sorted(fault.name for fault in plan(1, counts)) == sorted(
        name for name, count in counts.items() for _ in range(count)
    )


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    faults = plan(3, {"kill": 5, "pause": 2})
    write_plan(tmp_path / "faults.json", faults)
    assert read_plan(tmp_path / "faults.json") == faults


@pytest.mark.parametrize("text", ["kil=3", "kill=many", "kill=-1"])
def test_a_wrong_fault_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_faults(text)
    assert refused.value.fix


@pytest.mark.parametrize("culprits", [{7}, {3, 60}, {0, 1, 99}])
def test_shrinking_keeps_only_the_faults_that_are_needed(culprits: set[int]) -> None:
    faults = [Fault(number / 100, "kill", number) for number in range(100)]
    runs = []

    def fails(chosen: object) -> bool:
        runs.append(chosen)
        assert isinstance(chosen, list)
        return culprits <= {fault.choice for fault in chosen}

    assert {fault.choice for fault in shrink(faults, fails, runs=200)} == culprits
    assert len(runs) <= 200


def test_shrinking_ends_after_its_number_of_runs() -> None:
    faults = [Fault(number / 100, "kill", number) for number in range(100)]
    runs = []

    def fails(chosen: object) -> bool:
        runs.append(chosen)
        return False

    assert shrink(faults, fails, runs=3) == faults
    assert len(runs) == 3


@pytest.mark.parametrize(
    "url, fault",
    [
        ("sqlite:////nowhere/soak.db", "restart-store"),
        ("sqlite:////nowhere/soak.db", "cut"),
        ("postgresql://127.0.0.1/x", "write-lock"),
        ("postgresql://127.0.0.1/x", "disk-full"),
        ("postgresql://127.0.0.1/x", "restart-store"),
        ("memory://", "kill"),
    ],
)
def test_a_fault_that_the_store_cannot_have_is_refused_before_anything_runs(
    url: str, fault: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput):
        Soak(url, tmp_path / "records", 10, 1, plan(1, {fault: 1})).check()
    assert not (tmp_path / "records").exists()


def test_disk_full_is_refused_on_a_large_file_system(tmp_path: Path) -> None:
    given = Soak(f"sqlite:///{tmp_path / 'soak.db'}", tmp_path / "records", 10, 1, plan(1, {"disk-full": 1}))
    with pytest.raises(BadInput, match="larger than 1 GB"):
        given.check()


def test_every_fault_has_an_injection() -> None:
    from onerow.soak.injecting import Injector

    assert all(hasattr(Injector, "_" + name.replace("-", "_")) for name in FAULTS)
