"""Handlers that tell when and with what their process was started."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onerow import Context, Pipeline, Retry

IMPORTED_AT = datetime.now(UTC)
print("importing")


def make(**options: Any) -> Pipeline:
    """One isolated phase."""
    pipeline = Pipeline("early")
    pipeline.phase(isolate="process", retry=Retry(0), **options)(tell)
    return pipeline


def tell(job: dict[str, Any], ctx: Context) -> dict[str, Any]:
    for path in [Path(job["hold"])] if "hold" in job else []:
        path.with_suffix(".began").write_text(str(os.getpid()))
        while not path.exists():
            time.sleep(0.01)
    if "bytes" in job:
        kept = b"x" * job["bytes"]
        time.sleep(600)
        return {"bytes": len(kept)}
    return {
        "pid": os.getpid(),
        "imported_at": IMPORTED_AT.isoformat(),
        "variable": os.environ.get("PRESTARTED_APP"),
        "folder": os.getcwd(),
    }
