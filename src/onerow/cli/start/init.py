"""`onerow init`: write an example project with a test."""

from pathlib import Path

import click

from onerow.core.errors import BadInput

APP = '''"""Greetings, in three phases. Start a worker: onerow worker app"""

from onerow import Context, Pipeline, Queue, Retry

greetings = Pipeline("greetings", title="Hello {name}")


@greetings.phase
def compose(job):
    return f"Hello, {job['name']}!"


@greetings.phase(concurrency=1, retry=Retry(3, wait="5s"))
def translate(job, compose, ctx: Context):
    ctx.log(f"attempt {ctx.attempt}")
    return compose.upper()


@greetings.phase
async def deliver(job, translate):
    print(translate)


queue = Queue().serve(greetings)
'''

TEST = """from app import compose, greetings

from onerow import Queue, Worker


def test_a_phase_is_a_plain_function():
    assert compose({"name": "Ann"}) == "Hello, Ann!"


def test_the_whole_pipeline(tmp_path):
    queue = Queue(f"sqlite:///{tmp_path}/test.db")
    task = queue.add(greetings, {"name": "Ann"})
    Worker(queue, [greetings], until_idle=True).run()
    assert queue.get(task.task_id).results["translate"] == "HELLO, ANN!"
"""

SETTINGS = """# Queue() and every command use this store. ONEROW_STORE or --store replaces it: onerow config
store = "sqlite:///tasks.db"
"""

FILES = {"app.py": APP, "test_app.py": TEST, "onerow.toml": SETTINGS}


@click.command("init")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path())
def command(folder: Path) -> None:
    """Create a small example project with a test in FOLDER (default: the current folder)."""
    for name in FILES:
        if (folder / name).exists():
            raise BadInput(
                f"{folder / name} is there already", fix="name a new folder: onerow init my_project", field="folder"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
        click.echo(f"wrote {folder / name}")
    if folder != Path():
        click.echo(f"\n  cd {folder}")
    click.echo("  onerow worker app                  # in one terminal\n  onerow add greetings name=Ann      # in another\n  onerow watch")  # fmt: skip
