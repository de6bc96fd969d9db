"""Example mappings for `onerow pg adopt`, `onerow sqlite adopt` and the view commands."""

from importlib.resources import files


def example(name: str) -> str:
    """Return the text of a shipped mapping."""
    return files("onerow.mappings").joinpath(f"{name}.toml").read_text(encoding="utf-8")


def examples() -> list[str]:
    """Return the names of the shipped mappings."""
    return sorted(
        file.name.removesuffix(".toml") for file in files("onerow.mappings").iterdir() if file.name.endswith(".toml")
    )
