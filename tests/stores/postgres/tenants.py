"""Real login roles on a real server: an owner, a service, and two tenants of the AI tagger's workspaces."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import msgspec
import psycopg

from onerow.pipelines.pipeline import Pipeline
from onerow.stores.postgres import PostgresStore
from onerow.wiring import Queue
from tests.runner.seeded import new_name

ANNS, BOBS = "0190a000-0000-7000-8000-00000000000a", "0190b000-0000-7000-8000-00000000000b"
"""Accounts, which own tasks: one of Ann's workspace, one of Bob's."""

MEMBERS_READ = (
    "EXISTS (SELECT 1 FROM public.accounts AS a WHERE a.id::text = task_queue.user_id "
    "AND public.is_workspace_member(a.workspace_id))"
)

WORKSPACES = """
CREATE TABLE public.accounts (id uuid PRIMARY KEY, workspace_id integer NOT NULL);
CREATE TABLE public.workspace_members (workspace_id integer, member text);
CREATE FUNCTION public.is_workspace_member(workspace integer) RETURNS boolean
  LANGUAGE sql STABLE SECURITY DEFINER SET search_path = '' AS
  'SELECT EXISTS (SELECT FROM public.workspace_members AS m WHERE m.workspace_id = $1 AND m.member = session_user)';
INSERT INTO public.accounts VALUES ('{anns}', 1), ('{bobs}', 2);
INSERT INTO public.workspace_members VALUES (1, '{ann}'), (2, '{bob}');
GRANT SELECT ON public.accounts TO {members};
"""

tagging = Pipeline("tagging", title="{post}")
tagging.phase(name="tag")(lambda job: {"tags": [job["post"]]})


class Roles(msgspec.Struct, frozen=True):
    """Login roles of one test; `members` is the group of both tenants."""

    url: str
    suffix: str

    def name(self, role: str) -> str:
        return f"{role}_{self.suffix}"

    def url_of(self, role: str, **options: str) -> str:
        """Return the URL of the database for a login role."""
        parts = urlsplit(self.url)
        address = parts.netloc.rpartition("@")[2]
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return parts._replace(netloc=f"{self.name(role)}:pass@{address}", query=query).geturl()

    @contextmanager
    def sql(self, role: str) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self.url_of(role), autocommit=True) as connection:
            yield connection

    @contextmanager
    def queue(self, role: str) -> Iterator[Queue]:
        queue = Queue(PostgresStore(self.url_of(role)))
        try:
            yield queue
        finally:
            queue.close()

    def policy_options(self) -> list[str]:
        return ["--service", self.name("service"), "--tenant", self.name("members"), "--using", MEMBERS_READ]


@contextmanager
def login_roles(url: str) -> Iterator[Roles]:
    """Create the roles and the tagger's tables; the tables of onerow belong to the role `owner`."""
    roles = Roles(url, new_name(""))
    every = [roles.name(role) for role in ("owner", "service", "ann", "bob", "members")]
    with psycopg.connect(url, autocommit=True) as admin:
        for name in every:
            admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'pass'")
        try:
            admin.execute(f"GRANT {roles.name('members')} TO {roles.name('ann')}, {roles.name('bob')}")
            ((database,),) = admin.execute("SELECT current_database()").fetchall()
            admin.execute(f'GRANT CREATE ON DATABASE "{database}" TO {roles.name("owner")}')
            names = {role: roles.name(role) for role in ("ann", "bob", "members")}
            admin.execute(WORKSPACES.format(anns=ANNS, bobs=BOBS, **names))
            with roles.queue("owner") as queue:
                queue.publish(tagging)
            yield roles
        finally:
            admin.execute(f"DROP OWNED BY {', '.join(every)} CASCADE")
            admin.execute(f"DROP ROLE {', '.join(every)}")
