"""`make tagger`: three workspaces sync posts in three languages, a worker tags them and is killed in the midst.

PostgreSQL is the test server, or the server of TAGGER_DATABASE_URL, with a separate database. The model is a server on
loopback that answers with the offline tagger. `--picture` writes report.svg.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from rich.console import Console

from ai_tagger.evaluation import labelled
from ai_tagger.offline.model_server import ModelServer, Request, good
from ai_tagger.report import report
from ai_tagger.settings import Settings
from ai_tagger.tables import print_report
from tests.servers import Missing
from tests.servers.postgres import Databases, open_postgres

ACCOUNTS = {"en": ("Notebook", "daily notes"), "ko": ("거리의 카페", "카페 사장님 ☕"), "zh": ("週末電台", "週末小編")}


class Story:
    """Runs and prints the commands that a user would type."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self._environment = environment
        self._folder = folder

    def tagger(self, *words: str, url: str = "", shown: str = "") -> None:
        print(f"\n$ {shown}tagger {' '.join(words)}", flush=True)
        more = {"TAGGER_DATABASE_URL": url} if url else {}
        subprocess.run(self._command(*words), env=self._environment | more, cwd=self._folder, check=True, timeout=180)

    def killed_after(self, calls: int, model: ModelServer) -> None:
        """Run a worker, and kill all its processes with kill -9 as soon as the model was asked `calls` times."""
        print("\n$ tagger worker", flush=True)
        process = subprocess.Popen(self._command("worker"), env=self._environment, cwd=self._folder)
        while len(model.calls) < calls and process.poll() is None:
            time.sleep(0.01)
        for pid in (process.pid, *_children(process.pid)):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        print("… killed with kill -9, while the model answered.")

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "ai_tagger", *words]


def _children(pid: int) -> list[int]:
    """The worker processes of a supervisor, on Linux; elsewhere they end by themselves when it is gone."""
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(each) for each in found.read_text().split()] if found.exists() else []


def write_posts(folder: Path) -> Path:
    """Write the development half of the labelled posts as three workspaces would sync them."""
    lines = []
    for number, post in enumerate(labelled("development")):
        workspace, account = ACCOUNTS[post.language]
        fields = {"workspace": workspace, "account": account, "id": f"post-{number}", "text": post.text}
        lines.append(json.dumps(fields, ensure_ascii=False))
    path = folder / "posts.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def tell(owner_url: str, suffix: str, folder: Path, picture: bool) -> None:
    service, member, members, services = (f"{name}_{suffix}" for name in ("worker", "ann", "members", "service"))
    roles = {"TAGGER_MEMBERS_ROLE": members, "TAGGER_SERVICE_ROLE": services}
    posts = write_posts(folder)
    with ModelServer() as model:
        model.usual = _slowly
        base = {
            **os.environ,
            **model.environment,
            **roles,
            "TAGGER_GATHER": "200ms",
            "TAGGER_CONCURRENCY": "10",
            "TAGGER_LEASE": "3s",
        }
        with psycopg.connect(owner_url, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {member} LOGIN PASSWORD 'demo'")
        Story(base | {"TAGGER_DATABASE_URL": owner_url}, folder).tagger("setup", "--member", f"{member}=거리의 카페")
        with psycopg.connect(owner_url, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {service} LOGIN PASSWORD 'demo' IN ROLE {services}")
        url = _as(owner_url, service)
        story = Story(base | {"TAGGER_DATABASE_URL": url}, folder)
        story.tagger("sync", posts.name)
        story.tagger("report")
        story.killed_after(4, model)
        story.tagger("report")
        print("\nAnother worker rescues what the dead one held:", flush=True)
        _finish(story, url)
        story.tagger("report")
        print("\nA member of one workspace sees its own account, by row-level security:", flush=True)
        story.tagger("report", url=_as(owner_url, member), shown=f"TAGGER_DATABASE_URL=postgresql://{member}@… ")
        asked = [text for call in model.calls for text in call]
        print(f"\n{len(model.calls)} calls, {len(asked)} posts asked for, {len(set(asked))} different ones.")
        if picture:
            _draw(url)


def _finish(story: Story, url: str) -> None:
    """Run a worker until no job is open; again if it ended before the leases of the dead one."""
    deadline = time.monotonic() + 120
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(
            "SELECT 1 FROM ai_tag_queue WHERE status IN ('pending', 'processing') LIMIT 1"
        ).rowcount:
            if time.monotonic() > deadline:
                sys.exit("the jobs did not end in two minutes")
            story.tagger("worker", "--until-idle")
            time.sleep(1)


def _slowly(request: Request) -> None:
    time.sleep(0.2)
    good(request)


def _draw(url: str) -> None:
    console = Console(record=True, width=88, file=open(os.devnull, "w", encoding="utf-8"), highlight=False)  # noqa: SIM115
    print_report(report(Settings(database_url=url)), console)
    Path(__file__).with_name("report.svg").write_text(console.export_svg(title="tagger report"), encoding="utf-8")


def _as(url: str, role: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{role}:demo@{parts.netloc.rpartition('@')[2]}").geturl()


def main() -> None:
    try:
        given = os.environ.get("TAGGER_DATABASE_URL")
        server = Databases(given) if given else open_postgres()
    except Missing as missing:
        sys.exit(str(missing))
    suffix = uuid4().hex[:6]
    url = server.fresh_database()
    try:
        with tempfile.TemporaryDirectory() as folder:
            tell(url, suffix, Path(folder), "--picture" in sys.argv)
    finally:
        server.drop_database(url)
        with psycopg.connect(server.url, autocommit=True) as connection:
            for name in ("worker", "ann", "members", "service"):
                connection.execute(f"DROP ROLE IF EXISTS {name}_{suffix}")
        server.close()


if __name__ == "__main__":
    main()
