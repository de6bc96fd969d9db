"""Break the engine on purpose, one way at a time, and see the tests notice: `make mutants ARGS="-k slot"`.

Each mutant of mutants.toml replaces one piece of text in a copy of the source and runs the tests named beside it; they
must fail. A mutant that survives means that a promise is not tested.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.mutants import ROOT, Mutant, load

_OUT_OF_COPY = shutil.ignore_patterns(
    ".git", ".venv", ".cache", "__pycache__", ".*_cache", ".hypothesis", "build", "dist"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", help="only mutants whose name contains this text")
    chosen = [mutant for mutant in load() if parser.parse_args().k in mutant.name]
    survived = []
    for mutant in chosen:
        caught = is_caught(mutant)
        print(f"{'caught  ' if caught else 'SURVIVED'}  {mutant.name}", flush=True)
        if not caught:
            survived.append(mutant.name)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutants caught")
    return 1 if survived or not chosen else 0


def is_caught(mutant: Mutant) -> bool:
    """Whether the tests pass on the source as it is and fail on the mutated copy."""
    with tempfile.TemporaryDirectory(prefix="onerow-mutant-") as name:
        copy = Path(name) / "copy"
        shutil.copytree(ROOT, copy, ignore=_OUT_OF_COPY)
        (copy / ".cache").symlink_to(ROOT / ".cache")
        if (code := _run_tests(copy, mutant)) != 0:
            raise SystemExit(f"{mutant.name}: its tests end with exit code {code} without the mutation")
        path = copy / mutant.path
        path.write_text(mutant.applied_to(path.read_text(encoding="utf-8")), encoding="utf-8")
        return _run_tests(copy, mutant) == 1


def _run_tests(copy: Path, mutant: Mutant) -> int:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-k", mutant.only, *mutant.tests]
    environment = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=copy, env=environment, stdout=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
