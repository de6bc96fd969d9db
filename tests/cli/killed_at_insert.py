"""The command line in a process that is killed before or after it stores its first task; KILL says when."""

import os
import signal
from typing import Any

from onerow.cli import main
from onerow.stores.sqlite import SqliteStore

if __name__ == "__main__":
    insert = SqliteStore.insert

    def dying(self: SqliteStore, *args: Any, **terms: Any) -> Any:
        if os.environ["KILL"] == "after":
            insert(self, *args, **terms)
        os.kill(os.getpid(), signal.SIGKILL)

    SqliteStore.insert = dying  # type: ignore[method-assign]
    main()
