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
_FAILED = ("FAILED tests/", "ERROR tests/")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", help="only mutants whose name contains this text")
    chosen = [mutant for mutant in load() if parser.parse_args().k in mutant.name]
    passing: set[object] = set()  # selections of tests that pass without a mutation
    survived = []
    for mutant in chosen:
        code, first = outcome(mutant, passing)
        print(f"{'caught  ' if code == 1 else 'SURVIVED'}  {mutant.name}  ({first or f'exit code {code}'})", flush=True)
        if code != 1:
            survived.append(mutant.name)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutants caught")
    return 1 if survived or not chosen else 0


def outcome(mutant: Mutant, passing: set[object]) -> tuple[int, str]:
    """Return pytest's exit code on the mutated copy, and its first failed test; without the mutation the tests must pass."""
    with tempfile.TemporaryDirectory(prefix="onerow-mutant-") as name:
        copy = Path(name) / "copy"
        shutil.copytree(ROOT, copy, ignore=_OUT_OF_COPY)
        (copy / ".cache").symlink_to(ROOT / ".cache")
        selection = (mutant.tests, mutant.only)
        if selection not in passing:
            code, first = _run_tests(copy, mutant)
            if code != 0:
                raise SystemExit(f"{mutant.name}: exit code {code} without the mutation ({first})")
            passing.add(selection)
        path = copy / mutant.path
        path.write_text(mutant.applied_to(path.read_text(encoding="utf-8")), encoding="utf-8")
        return _run_tests(copy, mutant)


def _run_tests(copy: Path, mutant: Mutant) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-k", mutant.only, *mutant.tests]
    environment = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=copy, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    failed = [line for line in done.stdout.splitlines() if line.startswith(_FAILED)]
    return done.returncode, failed[0].split(" - ")[0] if failed else ""


if __name__ == "__main__":
    sys.exit(main())
