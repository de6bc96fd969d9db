"""Build the wheel and check it as a user meets it: contents, a clean installation, a program, the demo, its types.

`python -m tools.check_wheel [FOLDER]`: a folder with downloaded packages, to install from instead of the network.
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = (
    "onerow/cli/deploy_files/",
    "onerow/mappings/",
    "onerow/web/locales/",
    "onerow/web/static/",
    "onerow/web/templates/",
)
"""Folders of the package with files that are not code."""
REQUIRED = {
    "onerow/py.typed",
    "onerow/stores/sqlite/sql/schema_1.sql",
    "onerow/stores/postgres/sql/schema_1.sql",
}
SUFFIXES = {".py", ".sql", ".typed"}
PROGRAM = """
from onerow import Pipeline, Queue, Task, Worker

greetings = Pipeline("greetings", title="{name}")


@greetings.phase
def compose(job: dict[str, str]) -> str:
    return f"Hello, {job['name']}"


@greetings.phase
def deliver(job: dict[str, str], compose: str) -> int:
    return len(compose)


def main() -> None:
    queue = Queue("sqlite:///tasks.db")
    task: Task = queue.add(greetings, {"name": "Ann"})
    assert Worker(queue, [greetings], until_idle=True).run() == 0
    done = queue.get(task.task_id)
    assert (str(done.status), done.results["compose"], done.result) == ("completed", "Hello, Ann", 10), done


if __name__ == "__main__":
    main()
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="onerow-wheel-") as name:
        folder = Path(name)
        wheel = build(folder)
        check_contents(wheel)
        python = install(wheel, folder / "venv")
        project = folder / "project"
        project.mkdir()
        (project / "app.py").write_text(PROGRAM, encoding="utf-8")
        run([python, "app.py"], project)
        run([python.with_name("onerow"), "demo", "--fast"], project)
        tools = Path(sys.executable).parent
        run([tools / "mypy", "--strict", "--python-executable", python, "app.py"], project)
        run([tools / "pyright", "--pythonpath", python, "app.py"], project)
        check_public_types(tools / "pyright", python, project)
    print("the wheel is complete: contents, installation, program, demo, types")


def build(folder: Path) -> Path:
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _belongs(name: str) -> bool:
    return Path(name).suffix in SUFFIXES or any(name.startswith(folder) for folder in DATA)


def check_contents(wheel: Path) -> None:
    """Fail unless the wheel holds the package and its metadata only."""
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {name for name in names if ".dist-info/" not in name}
    foreign = sorted(name for name in package if not name.startswith("onerow/") or not _belongs(name))
    development = sorted(name for name in package if {"bench", "baselines", "tests"} & set(Path(name).parts))
    if foreign or development or not names >= REQUIRED:
        sys.exit(f"foreign: {foreign}\ndevelopment only: {development}\nmissing: {sorted(REQUIRED - names)}")


def install(wheel: Path, venv: Path) -> Path:
    """Install the wheel with every extra into a new environment; return its Python."""
    python = venv / "bin" / "python"
    what: list[str | Path] = ["-q", "-c", ROOT / "constraints.txt", f"{wheel}[all]"]
    downloaded = ["--offline", "--no-index", "--find-links", *sys.argv[1:]] if sys.argv[1:] else []
    run([sys.executable, "-m", "venv", "--without-pip", venv], ROOT)
    run([Path(sys.executable).with_name("uv"), "pip", "install", "--python", python, *downloaded, *what], ROOT)
    return python


def check_public_types(pyright: Path, python: Path, folder: Path) -> None:
    """Fail unless the types of all names that onerow exports are complete; show the score of all modules."""
    argv: list[str | Path] = [pyright, "--verifytypes", "onerow", "--ignoreexternal", "--outputjson"]
    # This mode ignores --pythonpath; it asks the first python of PATH.
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "VIRTUAL_ENV": str(python.parents[1])}
    answer = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    report = json.loads(answer.stdout)["typeCompleteness"]
    exported = [each for each in report["symbols"] if each["name"].count(".") == 1]
    unknown = [each["name"] for each in exported if not each["isTypeKnown"]]
    print(f"types known: {len(exported) - len(unknown)} of {len(exported)} exported names;", end=" ")
    print(f"{report['completenessScore']:.1%} of all symbols in all modules")
    if not exported or unknown:
        causes = [
            f"{each['name']}: {note['message'].splitlines()[0]}"
            for each in report["symbols"]
            for note in each["diagnostics"]
            if not each["isTypeKnown"]
        ]
        sys.exit("\n".join([f"incomplete: {', '.join(unknown)}", *causes]))


def run(argv: list[str | Path], folder: Path) -> None:
    # Neither this repository nor its environment may be importable.
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    print("$", *(Path(word).name if isinstance(word, Path) else word for word in argv), flush=True)
    subprocess.run(argv, cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main()
