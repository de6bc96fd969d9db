"""The README: its Python runs, its links work, its variables are the ones that the code reads."""

import re
from pathlib import Path

from onerow import Queue
from video_encoder import find_video, programs, settings, videos
from video_encoder.pipeline import Job

README = Path(__file__).parents[1] / "README.md"


def test_the_readme_s_python_runs(queue: Queue) -> None:
    queue.add(videos, Job("raw/42/holiday.mp4", "holiday.mp4"), task_id="42")
    (block,) = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    exec(block, {})
    assert find_video("42").status == "FAILED_TRANSIENT"


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target


def test_every_variable_it_names_is_read() -> None:
    source = "".join(Path(module.__file__ or "").read_text(encoding="utf-8") for module in (settings, programs))
    for name in re.findall(r"ENCODER_[A-Z0-9_]+[A-Z0-9]", README.read_text(encoding="utf-8")):
        assert f'"{name}"' in source or name == "ENCODER_S3", name
