"""Maintenance of one database: health checks and migration state."""

import json
from datetime import datetime
from typing import Any

from onerow.core.times import spell
from onerow.ports import Finding, Migration, StoredSize
from onerow.stores.mongo import schema
from onerow.stores.mongo.connections import Collections, Connections

FLOOR = (7, 0)
"""The oldest supported server version, which the tests run on too."""
FULL_SPEED = (8, 0)


def inspect(connections: Connections) -> list[Finding]:
    """Check server version, write concern, indexes and validator, in that order."""
    with connections.open(checked=False) as collections:
        build = collections.client.server_info()
        findings = [_version(str(build["version"]), tuple(build["versionArray"][:2])), _writes(collections)]
        stored, min_code = schema.versions(collections)
        if (other_schema := Migration(stored, schema.SCHEMA, "", min_code).finding()) is not None:
            return [*findings, other_schema]
        missing = schema.missing_indexes(collections)
        validator = schema.validator_in_force(collections)
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
        findings.append(
            Finding(
                "bad",
                "the collection does not have onerow's validator: the server accepts invalid documents",
                "onerow migrate, as a user who may run collMod on the collection",
            )
        )
    return findings


def sizes(connections: Connections) -> list[StoredSize]:
    """See ports.Sized.sizes."""
    found: list[StoredSize] = []
    with connections.open(checked=False) as collections:
        for collection in (collections.tasks, collections.notes, collections.log):
            stats = collections.database.command("collStats", collection.name)
            found.append(StoredSize(collection.name, "table", int(stats.get("storageSize", 0)), int(stats["count"])))
            indexes = stats.get("indexSizes", {})
            found += [StoredSize(f"{collection.name}.{name}", "index", int(size)) for name, size in indexes.items()]
    return sorted(found, key=lambda each: -each.bytes)


def _version(version_text: str, version: tuple[int, ...]) -> Finding:
    if version < FLOOR:
        return Finding("bad", f"MongoDB {version_text} is older than 7.0", "upgrade the server")
    if version < FULL_SPEED:
        return Finding(
            "slow", f"MongoDB {version_text} doesn't answer batches row by row; tasks are settled singly", "8.0 does"
        )
    return Finding("good", f"MongoDB {version_text}")


def _writes(collections: Collections) -> Finding:
    if collections.has_members:
        return Finding("good", "writes are journaled by a majority of the members; change streams wake workers")
    return Finding(
        "good",
        "writes are journaled by a server that stands alone: no member takes over when it is gone, "
        "workers poll for news, and tx= is not to be had",
    )


def migration(connections: Connections) -> Migration:
    """See ports.Administrable.migration; the script is for mongosh."""
    with connections.open(checked=False) as collections:
        stored, min_code = schema.versions(collections)
        script = _script(collections.tasks.name, collections.meta.name, new=stored == 0)
    return Migration(stored, schema.SCHEMA, script if stored < schema.SCHEMA else "", min_code)


def _script(collection: str, meta: str, *, new: bool) -> str:
    validator = {"validator": schema.VALIDATOR}
    lines = [
        f"db.createCollection({_js(collection)}, {_js(validator)})"
        if new
        else f"db.runCommand({_js({'collMod': collection} | validator)})"
    ]
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
    """Return a value as a mongosh literal."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_js(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_js, value)) + "]"
    return f'ISODate("{spell(value)}")' if isinstance(value, datetime) else json.dumps(value)
