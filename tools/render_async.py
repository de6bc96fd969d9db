"""Render the async methods: python -m tools.render_async

Every public method that uses the store has an async partner, `get` and `get_async`, with the same parameters. A partner
calls the sync method in a thread, so it has no logic of its own. A new method needs no more than a run of this tool; a
test fails until then, and names it.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src" / "onerow" / "engine" / "queue"

SOURCES: dict[str, dict[str, tuple[str, ...]]] = {
    # the rendered module → its classes, each with the classes (module.Class) whose methods it completes
    "queue_async": {"QueueAsync": ("scope.Scope", "queue.Queue")},
    "bulk_async": {"SelectionAsync": ("bulk.Selection",)},
    "lease_async": {"LeasedAsync": ("lease.Leased",), "LeasesAsync": ("lease.Leases",)},
    "puller_async": {"PullerAsync": ("puller.Puller",)},
    "schedules_async": {"CronsAsync": ("schedules.Crons",)},
}
READING_PROPERTIES = {"Selection.count"}  # partner: a method
ITERATED = {"Selection"}  # iteration reads pages from the store
IN_MEMORY = {
    # these don't use the store, or only when their result is used
    "Scope.for_user", "Queue.on", "Queue.alert", "Queue.send_events", "Queue.serve", "Queue.receive", "Queue.select", "Surroundable.middleware", "Leased.recall",
    "Queue.follow_logs",  # in a thread, it would wait until the task has ended, even if the caller was cancelled
}  # fmt: skip
OF_THE_ENGINE = {"Leased.heard", "Leased.extended", "Leased.ask_to_stop"}  # public for other modules, not for users

_EXTRA = {
    "AsyncIterator": "from collections.abc import AsyncIterator",
    "asyncio": "import asyncio",
    "overload": "from typing import overload",
}


def main() -> None:
    for module in SOURCES:
        (FOLDER / f"{module}.py").write_text(render(module), encoding="utf-8")


def render(module: str) -> str:
    """Return the text of one rendered module."""
    bodies: list[str] = []
    used: set[str] = set()
    imports: dict[str, str] = {}
    for name, origins in SOURCES[module].items():
        methods = []
        for origin in origins:
            source, _, owner = origin.partition(".")
            tree = ast.parse((FOLDER / f"{source}.py").read_text(encoding="utf-8"))
            imports |= _imports(tree) | _EXTRA
            found = list(_partners(_class(tree, owner), owner))
            methods += [text for text, _ in found]
            used |= {word for _, words in found for word in words}
        target = origins[-1].partition(".")[2]
        bodies.append(f'class {name}:\n    """Async methods of {target}."""\n\n' + "\n".join(methods))
    lines = [
        f'"""Async methods, rendered by tools/render_async.py from {", ".join(_files(module))}; do not edit."""',
        "# mypy: warn-return-any=False",
        *sorted(imports[word] for word in used if word in imports),
        "from onerow.engine.queue.in_thread import in_thread",
        *bodies,
    ]
    return _formatted("\n".join(lines))


def _files(module: str) -> list[str]:
    origins = [origin for each in SOURCES[module].values() for origin in each]
    return list(dict.fromkeys(f"{origin.partition('.')[0]}.py" for origin in origins))


def _imports(tree: ast.Module) -> dict[str, str]:
    """Return the statement that imports each name."""
    return {
        alias.asname or alias.name: f"from {node.module} import {alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _class(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def _partners(owner: ast.ClassDef, name: str) -> Iterator[tuple[str, set[str]]]:
    """Yield the text of each async method, and the names that it uses."""
    for node in owner.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        method = f"{name}.{node.name}"
        decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
        is_partner = not node.name.startswith("_") and method not in IN_MEMORY | OF_THE_ENGINE
        if "property" in decorators:
            if method in READING_PROPERTIES:
                yield _partner(node, f"in_thread(self, '__getattribute__', '{node.name}')"), _names(node)
        elif is_partner:
            yield _partner(node, None if "overload" in decorators else _call(node)), _names(node)
        elif node.name == "__enter__":
            yield (
                "    async def __aenter__(self) -> Self:\n        await in_thread(self, '__enter__')\n        return self\n",
                {"Self"},
            )
        elif node.name == "__exit__":
            exit_ = ast.parse(ast.unparse(node)).body[0]
            assert isinstance(exit_, ast.FunctionDef)
            exit_.name = "__aexit__"
            yield _partner(exit_, _call(node), suffix="", doc=""), _names(node)
    if name in ITERATED:
        yield (
            "    async def __aiter__(self) -> AsyncIterator[Task]:\n"
            "        tasks = await in_thread(self, '__iter__')\n"
            "        while (task := await asyncio.to_thread(next, tasks, None)) is not None:\n"
            "            yield task\n",
            {"AsyncIterator", "asyncio", "Task"},
        )


def _partner(node: ast.FunctionDef, body: str | None, *, suffix: str = "_async", doc: str | None = None) -> str:
    returns = ast.unparse(node.returns) if node.returns else "None"
    head = f"    async def {node.name}{suffix}({ast.unparse(node.args)}) -> {returns}:"
    if body is None:
        return f"    @overload\n{head} ...\n"
    text = f'        """Async `{node.name}`."""\n' if doc is None else ""
    return f"{head}\n{text}        return await {body}\n"


def _call(node: ast.FunctionDef) -> str:
    given = node.args
    words = ["self", repr(node.name)]
    words += [each.arg for each in [*given.posonlyargs, *given.args][1:]]
    words += [f"*{given.vararg.arg}"] if given.vararg else []
    words += [f"{each.arg}={each.arg}" for each in given.kwonlyargs]
    words += [f"**{given.kwarg.arg}"] if given.kwarg else []
    return f"in_thread({', '.join(words)})"


def _names(node: ast.FunctionDef) -> set[str]:
    signature: list[ast.AST] = [node.args, *([node.returns] if node.returns else [])]
    return {each.id for part in signature for each in ast.walk(part) if isinstance(each, ast.Name)}


def _formatted(text: str) -> str:
    for command in (["check", "-q", "--select", "I,F401", "--fix-only", "-"], ["format", "-q", "-"]):
        argv = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(FOLDER / "rendered.py")]
        text = subprocess.run(argv, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    main()
