"""The dashboard within other people's applications: FastAPI in this process, Django in a process of its own."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import httpx
from fastapi import FastAPI
from starlette.requests import Request

from onerow import Queue
from onerow.web import dashboard
from tests.web.kit import Client, csrf_of, until

PAGE = {"accept": "text/html"}


def test_it_is_mounted_in_fastapi_whose_function_says_who_may_call(queue: Queue) -> None:
    api = FastAPI()

    @api.get("/own")
    def own() -> str:
        return "own"

    def role_of(request: Request) -> str | None:
        return request.headers.get("x-role")

    inner = dashboard(queue, authorize=role_of)
    api.mount("/queue", inner)
    try:
        client = Client(api)
        assert client.get("/own").json() == "own"
        assert client.get("/queue/tasks", headers=PAGE).status_code == 403
        page = client.get("/queue/tasks", headers=PAGE | {"x-role": "viewer"})
        assert page.status_code == 200
        assert re.search(r'href="(\./)?static/onerow.css', page.text)
        assert client.get("/queue/static/onerow.css", headers={"x-role": "viewer"}).status_code == 200
        assert client.get("/queue/api/v1/overview", headers={"x-role": "viewer"}).status_code == 200
        assert client.get("/queue/new", headers=PAGE | {"x-role": "viewer"}).status_code == 403
    finally:
        inner.close()


def test_it_is_mounted_in_django_and_knows_its_users(queue: Queue, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.web.django_site", queue.url, str(tmp_path), str(port)],
        cwd=Path(__file__).parents[2],
    )
    base = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=base, headers=PAGE, timeout=900) as client:
            until(lambda: _answers(base, process))
            assert client.get("/").text == "Django, AnonymousUser"
            assert client.get("/queue/").status_code == 403
            client.get("/enter/lee")
            assert client.get("/").text == "Django, lee"
            assert client.get("/queue/").status_code == 200
            assert client.get("/queue/new").status_code == 403  # a viewer
            client.get("/enter/kim")
            form = client.get("/queue/new?pipeline=clips").text
            fields = {"pipeline": "clips", "payload": '{"topic": "潮汐"}', "priority": "0"}
            assert client.post("/queue/new", data=fields).status_code == 403  # without the token of our page
            added = client.post("/queue/new", data={**fields, "csrf": csrf_of(form)})
            assert added.status_code == 303, added.text
            shown = client.get(added.headers["location"].removeprefix("./").join(["/queue/", ""]))
            assert "潮汐" in shown.text
            task_id = added.headers["location"].partition("id=")[2]
            cancel = client.post("/queue/act", data={"name": "cancel", "id": task_id, "csrf": csrf_of(form)})
            assert cancel.status_code == 303
        assert queue.get(task_id).history[-1].by == "kim"
    finally:
        process.terminate()
        process.wait(900)


def _answers(base: str, process: "subprocess.Popen[bytes]") -> bool:
    assert process.poll() is None, "the server ended"
    try:
        return httpx.get(f"{base}/queue/healthz", timeout=900).status_code == 200
    except httpx.TransportError:
        return False
