"""Upkeep of one database: would the promises hold here, how far is it migrated, and what would be done."""

import json
from datetime import datetime
from typing import Any

from onerow.core.times import spell
from onerow.ports import Finding, Migration
from onerow.stores.mongo import schema
from onerow.stores.mongo.connections import Collections, Connections

FLOOR = (7, 0)
"""The oldest server that is supported, and the oldest that the tests run on."""
FULL_SPEED = (8, 0)


def inspect(door: Connections) -> list[Finding]:
    """Server version, write concern, indexes, validator, in that order."""
    with door.open(checked=False) as rooms:
        build = rooms.client.server_info()
        findings = [_version(str(build["version"]), tuple(build["versionArray"][:2])), _writes(rooms)]
        stored, min_code = schema.versions(rooms)
        if (other_schema := Migration(stored, schema.SCHEMA, "", min_code).finding()) is not None:
            return [*findings, other_schema]
        missing = schema.missing_indexes(rooms)
        validator = schema.validator_in_force(rooms)
    findings += [
        Finding(
            "bad" if index.unique else "slow",
            f"the index {index.name} is missing or another" + (": limits or keys don't hold" if index.unique else ""),
            "onerow migrate",
        )
        for index in missing
    ]
    if not missing:
        findings.append(Finding("good", f"all {len(schema.INDEXES)} indexes are there"))
    if validator == schema.VALIDATOR:
        findings.append(Finding("good", "documents are validated"))
    else:
        findings.append(Finding("bad", "documents are not validated as onerow does", "onerow migrate"))
    return findings


def _version(told: str, version: tuple[int, ...]) -> Finding:
    if version < FLOOR:
        return Finding("bad", f"MongoDB {told} is older than 7.0", "upgrade the server")
    if version < FULL_SPEED:
        return Finding(
            "slow", f"MongoDB {told} doesn't answer batches row by row; tasks are settled singly", "8.0 does"
        )
    return Finding("good", f"MongoDB {told}")


def _writes(rooms: Collections) -> Finding:
    if rooms.has_members:
        return Finding("good", "writes are journaled by a majority of the members; change streams wake workers")
    return Finding(
        "good",
        "writes are journaled by a server that stands alone: no member takes over when it is gone, "
        "workers poll for news, and tx= is not to be had",
    )


def migration(door: Connections) -> Migration:
    """See ports.Upkeep.migration; as commands for mongosh."""
    with door.open(checked=False) as rooms:
        stored, min_code = schema.versions(rooms)
        script = _script(rooms.tasks.name, rooms.meta.name)
    return Migration(stored, schema.SCHEMA, script if stored < schema.SCHEMA else "", min_code)


def _script(collection: str, meta: str) -> str:
    lines = [f"db.createCollection({_js(collection)}, {_js({'validator': schema.VALIDATOR})})"]
    for index in schema.INDEXES:
        options: dict[str, Any] = {"name": index.name}
        if index.where:
            options["partialFilterExpression"] = index.where
        if index.unique:
            options["unique"] = True
        lines.append(
            f"db.getCollection({_js(collection)}).createIndex({_js(dict.fromkeys(index.keys, 1))}, {_js(options)})"
        )
    for key, value in (("schema", schema.SCHEMA), ("min_code", schema.MIN_CODE)):
        change = _js({"$max": {"value": value}})
        lines.append(f"db.getCollection({_js(meta)}).updateOne({_js({'_id': key})}, {change}, {_js({'upsert': True})})")
    return "".join(f"{line}\n" for line in lines)


def _js(value: Any) -> str:
    """A value as mongosh reads it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_js(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_js, value)) + "]"
    return f'ISODate("{spell(value)}")' if isinstance(value, datetime) else json.dumps(value)
