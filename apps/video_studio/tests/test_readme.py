"""The README: its Python runs, its links work, its variables are the ones that the code reads."""

import re
from pathlib import Path

from onerow import Queue
from video_studio import settings

README = Path(__file__).parents[1] / "README.md"


def test_the_readme_s_python_runs(queue: Queue) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    found: dict[str, object] = {}
    exec(block, found)
    assert [task.status for task in queue.select()] == ["failed"]


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target


def test_every_variable_it_names_is_read() -> None:
    source = Path(settings.__file__).read_text(encoding="utf-8")
    for name in re.findall(r"STUDIO_[A-Z_]+", README.read_text(encoding="utf-8")):
        assert f'"{name}"' in source, name
