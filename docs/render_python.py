"""Render docs/reference/python/*.md from signatures, docstrings and comments: python -m docs.render_python

How the code says what a thing means:

- A method's docstring explains its parameters in sentences of the form `name: text`; `name, other: text` is for both. The
  docstring of a class explains those of its constructor.
- A field or attribute has a comment behind it, or a docstring below it.
- What means the same everywhere is in COMMON (python_pages.py).

A test fails if a page is not current, or if a method, parameter, field or attribute is explained nowhere.
"""

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, is_typeddict

from docs.python_pages import COMMON, COMMON_FIELDS, PAGES, Listed, Page
from onerow import AddOptions
from onerow.core.durations import spell_duration

FOLDER = Path(__file__).parent / "reference" / "python"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    missing: list[str] = []
    for name, page in PAGES.items():
        (FOLDER / f"{name}.md").write_text(render(page, missing), encoding="utf-8")
    if missing:
        sys.exit("not explained:\n  " + "\n  ".join(missing))


def render(page: Page, missing: list[str]) -> str:
    """Return the text of a page; add what is explained nowhere to `missing`."""
    lines = [f"# {page.title}", "", page.intro, "", "Rendered by `python -m docs.render_python` from the code.", ""]
    for listed in page.listed:
        found = getattr(import_module(listed.home), listed.name)
        if isinstance(found, type):
            lines += _of_class(found, listed, missing)
        else:
            lines += _of_function(listed.name, found, missing)
    return "\n".join(lines).rstrip() + "\n"


# ── reading the code ──


class Row(NamedTuple):
    """A parameter, field or attribute."""

    name: str
    type: str
    default: str
    meaning: str


@cache
def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


@cache
def _nodes(path: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))))


def _class_node(kind: type) -> ast.ClassDef:
    (found,) = [n for n in _nodes(_path(kind)) if isinstance(n, ast.ClassDef) and n.name == kind.__name__]
    return found


def _function_node(function: Callable[..., Any]) -> ast.FunctionDef | ast.AsyncFunctionDef:
    code = inspect.unwrap(function).__code__
    for node in _nodes(code.co_filename):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if (first, node.name) == (code.co_firstlineno, code.co_name):
                return node
    raise LookupError(function)


def _path(kind: type) -> str:
    return inspect.getsourcefile(kind) or ""


def _bases(kind: type) -> list[type]:
    """Return the class and its bases, the base first, without those of libraries."""
    if is_typeddict(kind):  # at run time it does not know its bases
        names = [base.id for base in _class_node(kind).bases if isinstance(base, ast.Name)]
        bases = [vars(sys.modules[kind.__module__])[name] for name in names if name != "TypedDict"]
        return [*(each for base in bases for each in _bases(base)), kind]
    libraries = {*sys.stdlib_module_names, "msgspec"}
    return [each for each in reversed(kind.__mro__) if each.__module__.partition(".")[0] not in libraries]


def _assigned(path: str, body: Sequence[ast.stmt]) -> Iterator[tuple[ast.expr, ast.AnnAssign | ast.Assign, str]]:
    """Yield the target of each assignment and the comment behind it, or the docstring below it."""
    for node, below in zip(body, [*body[1:], None], strict=False):
        if isinstance(node, ast.AnnAssign | ast.Assign):
            line = _lines(path)[(node.end_lineno or 0) - 1].encode()
            comment = line[node.end_col_offset :].decode().strip().removeprefix("#").strip()
            match below:
                case ast.Expr(value=ast.Constant(value=str() as text)):
                    comment = " ".join(text.split())
            yield node.target if isinstance(node, ast.AnnAssign) else node.targets[0], node, comment


def fields(kind: type) -> dict[str, Row]:
    """Return the fields of a struct or TypedDict, also inherited ones."""
    found: dict[str, Row] = {}
    if issubclass(kind, BaseException):
        return found
    for owner in _bases(kind):
        for target, node, comment in _assigned(_path(owner), _class_node(owner).body):
            if isinstance(target, ast.Name) and isinstance(node, ast.AnnAssign) and not target.id.startswith("_"):
                default = "" if node.value is None or isinstance(node.value, ast.Call) else ast.unparse(node.value)
                found[target.id] = Row(target.id, _type(node.annotation), default, comment)
        said = read_doc(owner.__doc__, found).parameters
        found |= {name: found[name]._replace(meaning=text) for name, text in said.items()}
    return found


def attributes(kind: type) -> dict[str, Row]:
    """Return what the constructor assigns and documents, and the properties."""
    found: dict[str, Row] = {}
    for owner in _bases(kind):
        made = [n for n in _class_node(owner).body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        given = {a.arg: a.annotation for n in made for a in [*n.args.args, *n.args.kwonlyargs]}
        for target, node, comment in _assigned(_path(owner), made[-1].body if made else []):
            if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
                known = node.annotation if isinstance(node, ast.AnnAssign) else given.get(target.attr)
                if comment or target.attr not in given:  # else it is explained with the constructor
                    found[target.attr] = Row(target.attr, _type(known), "", comment)
    for name, each in members(kind).items():
        if isinstance(each, property) and each.fget is not None:
            doc = " ".join((inspect.getdoc(each) or "").split())
            found[name] = Row(name, _type(_function_node(each.fget).returns), "", doc)
    return found


def members(kind: type) -> dict[str, Any]:
    """Return the public methods and properties of a class; an async partner belongs to its method."""
    found = {name: each for owner in _bases(kind) for name, each in vars(owner).items() if not name.startswith("_")}
    own = {name: each for name, each in found.items() if inspect.isfunction(each) or isinstance(each, property)}
    return {name: each for name, each in own.items() if name.removesuffix("_async") not in own or "_async" not in name}


def parameters(function: Callable[..., Any], said: dict[str, str], *, expand: bool) -> list[Row]:
    """Return the parameters of a function; expand: in place of `**options`, each of the options."""
    node = _function_node(function).args
    given = [*node.posonlyargs, *node.args, *node.kwonlyargs, *(each for each in (node.vararg, node.kwarg) if each)]
    annotations = {each.arg: each.annotation for each in given}
    rows: list[Row] = []
    for each in inspect.signature(function).parameters.values():
        shown = _shown(each)
        default = "" if each.default is each.empty else _default(each.default)
        meaning = said.get(each.name, "")
        match annotations[each.name]:
            case ast.Subscript(value=ast.Name(id="Unpack"), slice=ast.Name(id=name)) if expand:
                rows += fields(inspect.unwrap(function).__globals__[name]).values()
            case ast.Subscript(value=ast.Name(id="Unpack"), slice=ast.Name(id=name)):
                rows.append(Row(shown, name, "", meaning or f"Those of [{name}]({_link(name)})."))
            case annotation if each.name != "self":
                rows.append(Row(shown, _type(annotation), default, meaning))
    return rows


def _shown(parameter: inspect.Parameter) -> str:
    stars = 1 if parameter.kind is parameter.VAR_POSITIONAL else 2 if parameter.kind is parameter.VAR_KEYWORD else 0
    return "*" * stars + parameter.name


def _type(node: ast.expr | None) -> str:
    if node is None:
        return ""
    text = str(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)
    return re.sub(r"\bPipeline\[\w+\]", "Pipeline", text)


def _default(value: object) -> str:
    if isinstance(value, timedelta):
        return repr(spell_duration(value))
    return repr(value) if value is None or isinstance(value, str | int | float | tuple) else "…"


class Doc(NamedTuple):
    """A docstring: its prose, and what it says of each parameter."""

    prose: list[str]
    parameters: dict[str, str]


_CLAUSE = re.compile(r"(?:^|(?<=[.;] ))(\w+(?:, \w+)*): ")


def read_doc(text: str | None, names: Sequence[str] | dict[str, Any]) -> Doc:
    """Separate the sentences `name: text` of a docstring from its prose."""
    found = Doc([], {})
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        line = " ".join(paragraph.split())
        clauses = [match for match in _CLAUSE.finditer(line) if set(match[1].split(", ")) <= set(names)]
        starts = [match.start() for match in clauses]
        if prose := line[: starts[0] if starts else None].strip():
            found.prose.append(_sentence(prose.removesuffix(";")))
        for match, end in zip(clauses, [*starts[1:], len(line)], strict=False):
            meaning = _sentence(line[match.end() : end].strip().removesuffix(";"))
            found.parameters.update(dict.fromkeys(match[1].split(", "), meaning))
    return found


# ── writing pages ──


def _of_class(kind: type, listed: Listed, missing: list[str]) -> list[str]:
    own, hidden = fields(kind), set(listed.internal.split())
    constructor = kind.__init__ if listed.made and not own and "__init__" in _class_names(kind) else None  # type: ignore[misc]
    doc = read_doc(kind.__doc__, own or (list(inspect.signature(constructor).parameters) if constructor else []))
    lines = [f"## {listed.name}", "", *_prose(listed.name, doc, missing)]
    if constructor is not None:
        lines += [_signature(listed.name, constructor), ""]
        lines += _table("parameter", listed.name, parameters(constructor, doc.parameters, expand=False), missing)
    lines += _table("field", listed.name, [row for name, row in own.items() if name not in hidden], missing)
    if not listed.methods:
        return lines
    grouped = {name: title for title, names in (listed.groups or {}).items() for name in names.split()}
    shown = {name: row for name, row in attributes(kind).items() if name not in hidden and name not in grouped}
    lines += _table("attribute", listed.name, list(shown.values()), missing)
    methods = {name: each for name, each in members(kind).items() if name not in hidden and name not in shown}
    missing += [f"{listed.name}.{name}: in no group" for name in methods if grouped and name not in grouped]
    known = {*members(kind), *own, *attributes(kind)}
    missing += [f"{listed.name}.{name}: does not exist" for name in [*grouped, *hidden] if name not in known]
    title = ""
    for name in grouped or methods:
        if grouped.get(name, title) != title:
            title = grouped[name]
            lines += [f"### {title}", ""]
        lines += _of_method(kind, name, f"{listed.name}.{name}", "####" if grouped else "###", missing)
    return lines


def _class_names(kind: type) -> set[str]:
    return {name for each in _bases(kind) for name in vars(each)}


def _of_method(kind: type, name: str, where: str, level: str, missing: list[str]) -> list[str]:
    found = members(kind).get(name)
    if name == "phase":  # a decorator with two forms; this one has its options
        return _of_function(where, kind._phase, missing, level, doc_of=found, expand=True)  # type: ignore[attr-defined]
    if isinstance(found, property):
        row = attributes(kind)[name]
        return [f"{level} {where}", "", f"`{name}` → `{row.type}`", "", *_prose(where, Doc([row.meaning], {}), missing)]
    partner = f"{name}_async" if hasattr(kind, f"{name}_async") else ""
    return [] if found is None else _of_function(where, found, missing, level, partner=partner)


def _of_function(
    where: str,
    function: Callable[..., Any],
    missing: list[str],
    level: str = "##",
    *,
    partner: str = "",
    doc_of: object = None,
    expand: bool = False,
) -> list[str]:
    doc = read_doc(inspect.getdoc(doc_of or function), list(inspect.signature(function).parameters))
    head = _signature(where.rpartition(".")[2], function) + (f" · async: `{partner}`" if partner else "")
    rows = parameters(function, doc.parameters, expand=expand)
    return [f"{level} {where}", "", head, "", *_prose(where, doc, missing), *_table("parameter", where, rows, missing)]


def _signature(name: str, function: Callable[..., Any]) -> str:
    shown: list[str] = []
    for each in inspect.signature(function).parameters.values():
        if each.kind is each.KEYWORD_ONLY and not any(text.startswith("*") for text in shown):
            shown.append("*")
        shown.append(_shown(each) + ("" if each.default is each.empty else "=…"))
    returned = _type(_function_node(function).returns)
    arrow = f" → `{returned}`" if returned not in ("", "None", "Any") else ""
    return f"`{name}({', '.join(text for text in shown if text != 'self')})`{arrow}"


def _prose(where: str, doc: Doc, missing: list[str]) -> list[str]:
    if not any(doc.prose):
        missing.append(where)
    return [line for text in doc.prose for line in (_escaped(text), "")]


def _table(head: str, where: str, rows: Sequence[Row], missing: list[str]) -> list[str]:
    lines = [f"| {head} | type | meaning |", "| --- | --- | --- |"]
    for row in rows:
        common = COMMON if head == "parameter" else COMMON | COMMON_FIELDS
        meaning = row.meaning or _of_add(where, row.name) or common.get(row.name.strip("*"), "")
        if not meaning:
            missing.append(f"{where}, {head} {row.name}")
        kind = f"`{row.type}`" if row.type else ""
        default = f" = `{row.default}`" if row.default else ""
        cells = (f"`{row.name}`", f"{kind}{default}", _escaped(_sentence(meaning)))
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return [*lines, ""] if rows else []


def _of_add(where: str, name: str) -> str:
    """Return what AddOptions says of an option, for what has the same options."""
    options = fields(AddOptions) if where in ("Queue.add", "Addition") else {}
    return options[name].meaning if name in options else ""


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", ":", "…")) or not text else f"{text}."


def _escaped(text: str) -> str:
    """Return the text with characters escaped that Markdown would interpret outside of code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*<])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def _link(name: str) -> str:
    (page,) = [page for page, content in PAGES.items() if any(listed.name == name for listed in content.listed)]
    return f"{page}.md#{name.lower()}"


if __name__ == "__main__":
    main()
