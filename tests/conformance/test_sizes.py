"""Sizes of a store: every store that is on disk names its parts, the largest first."""

from onerow.ports import Sized, Store
from onerow.stores.memory import MemoryStore
from tests.samples import a_task


def test_a_store_on_disk_names_the_sizes_of_its_parts(store: Store) -> None:
    if isinstance(store, MemoryStore):
        assert not isinstance(store, Sized)
        return
    assert isinstance(store, Sized)
    store.insert([a_task(f"t{number}", payload={"text": "x" * 1000}) for number in range(50)])
    found = store.sizes()
    assert found
    assert sum(each.bytes for each in found) > 10_000
    assert len({(each.kind, each.name) for each in found}) == len(found)
    if {each.kind for each in found} != {"file"}:
        assert [each.bytes for each in found] == sorted((each.bytes for each in found), reverse=True)
        assert {"table", "index"} <= {each.kind for each in found}
        assert any("task_queue" in each.name or "task" in each.name for each in found if each.kind == "table")
