"""Run `onerow soak` against a server of the tests, which it may restart: python -m tests.soak postgres --tasks 100000 …

The first argument is sqlite, postgres or mongo; the others are those of `onerow soak`, without --store.
"""

import sys

from onerow.cli.maintain.soak import command
from tests.soak.kit import SERVERS, own_server


def main() -> None:
    kind, *options = sys.argv[1:] or [""]
    if kind not in ("sqlite", *SERVERS):
        raise SystemExit(__doc__)
    if kind == "sqlite":
        command.main(options, prog_name="onerow soak")
    with own_server(kind) as (url, server):
        command.main([*options, "--store", url], prog_name="onerow soak", obj=server)


if __name__ == "__main__":
    main()
