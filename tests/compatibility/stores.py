"""Stores as files: dumped by the code that wrote them, restored for the code that must read them.

`python -m tests.compatibility.stores` writes the files anew. Do that only for a new schema number, beside the old files:
a file that an older release could have written is never rewritten.
"""

import gzip
import sys
from pathlib import Path
from typing import Any

import psycopg
import pymongo
from bson import json_util

from onerow.ports import Store
from onerow.stores.mongo import MongoStore
from onerow.stores.postgres import PostgresStore
from onerow.stores.sqlite import SqliteStore
from tests.compatibility.contents import write
from tests.servers.mongo import open_mongo
from tests.servers.postgres import Databases, open_postgres, pg_dump

DATA = Path(__file__).with_name("data")
SCHEMA = 2


def file_of(kind: str, schema: int = SCHEMA) -> Path:
    ending = {"sqlite": "db.gz", "postgres": "sql.gz", "mongo": "json.gz"}[kind]
    return DATA / f"{kind}-schema-{schema}.{ending}"


def dump_sqlite(path: Path, target: Path) -> None:
    target.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def restore_sqlite(source: Path, path: Path) -> Store:
    path.write_bytes(gzip.decompress(source.read_bytes()))
    return SqliteStore(path)


def dump_postgres(url: str, target: Path) -> None:
    target.write_bytes(gzip.compress(pg_dump(url), mtime=0))


def restore_postgres(source: Path, url: str) -> Store:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(gzip.decompress(source.read_bytes()))
    return PostgresStore(url)


def dump_mongo(url: str, target: Path) -> None:
    with pymongo.MongoClient[dict[str, Any]](url, tz_aware=True) as client:
        database = client.get_default_database()
        collections = [
            {
                "name": name,
                "options": next(iter(database.list_collections(filter={"name": name})))["options"],
                "indexes": [dict(index) for index in database[name].list_indexes() if index["name"] != "_id_"],
                "documents": list(database[name].find()),
            }
            for name in sorted(database.list_collection_names())
        ]
    target.write_bytes(
        gzip.compress(json_util.dumps(collections, json_options=json_util.CANONICAL_JSON_OPTIONS).encode(), mtime=0)
    )


def restore_mongo(source: Path, url: str) -> Store:
    read = json_util.loads(gzip.decompress(source.read_bytes()), json_options=json_util.CANONICAL_JSON_OPTIONS)
    with pymongo.MongoClient[dict[str, Any]](url, tz_aware=True) as client:
        database = client.get_default_database()
        for each in read:
            options = {name: value for name, value in each["options"].items() if name != "uuid"}
            database.create_collection(each["name"], **options)
            for index in each["indexes"]:
                keys = list(index.pop("key").items())
                index.pop("v", None)
                index.pop("ns", None)
                database[each["name"]].create_index(keys, **index)
            if each["documents"]:
                database[each["name"]].insert_many(each["documents"])
    return MongoStore(url)


def main(folder: Path) -> None:
    DATA.mkdir(exist_ok=True)
    path = folder / "fixture.db"
    store: Store = SqliteStore(path)
    write(store)
    store.close()
    dump_sqlite(path, file_of("sqlite"))
    servers: Databases = open_postgres()
    try:
        url = servers.fresh_database()
        store = PostgresStore(url)
        write(store)
        store.close()
        dump_postgres(url, file_of("postgres"))
    finally:
        servers.close()
    mongo = open_mongo()
    try:
        url = mongo.fresh_database()
        store = MongoStore(url)
        write(store)
        store.close()
        dump_mongo(url, file_of("mongo"))
    finally:
        mongo.close()


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
    print(*sorted(path.name for path in DATA.iterdir()), sep="\n", file=sys.stdout)
