"""Who may call what: roles, credentials, sessions, CSRF, hosts, headers, sizes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from onerow import BadInput, Queue
from onerow.web import Access, Dashboard, Identity, Role, dashboard, pool, read_access
from onerow.web.api import logs
from onerow.web.problems import Refused
from onerow.web.routing import Endpoint
from onerow.web.security.credentials import check_password, hash_password, new_token
from onerow.web.security.headers import HEADERS
from onerow.web.security.log_in_rate import LogInRate
from onerow.web.security.sessions import COOKIE, KEPT_FOR, Sessions
from tests.web.kit import PASSWORD, TENANT_TOKEN, TOKENS, Client, access, api, csrf_of, log_in

PAGE = {"accept": "text/html"}
HASH = hash_password(PASSWORD, cost=1024)
PATHS = {"task_id": "t1", "pipeline": "clips", "phase": "script", "name": "x"}


def filled(path: str) -> str:
    for name, value in PATHS.items():
        path = path.replace(f"{{{name}}}", value)
    return path.split("{")[0]


def all_endpoints(site: Dashboard) -> Iterator[Endpoint]:
    yield from site.endpoints


# ── roles ──


@pytest.mark.parametrize("role", [None, "viewer", "operator", "admin"])
def test_every_route_refuses_callers_without_its_role(site: Dashboard, role: str | None) -> None:
    client = Client(site, token=None if role is None else TOKENS[role])
    held = Role.PUBLIC if role is None else Role[role.upper()]
    walked = 0
    for endpoint in all_endpoints(site):
        if endpoint.role <= held:
            continue
        answer = client(endpoint.method, filled(endpoint.path), headers={"content-type": "application/json"})
        assert answer.status_code == (401 if role is None else 403), endpoint.path
        assert answer.headers["content-type"] == "application/problem+json"
        walked += 1
    assert walked > 0 or role == "admin"


def test_every_route_that_changes_something_needs_more_than_a_viewer(site: Dashboard) -> None:
    for endpoint in all_endpoints(site):
        if endpoint.method != "GET" and endpoint.path not in ("/login", "/logout"):
            assert endpoint.role >= Role.OPERATOR, endpoint.path


def test_a_caller_for_one_user_sees_and_changes_only_that_users_tasks(site: Dashboard, queue: Queue) -> None:
    mine = queue.add("clips", {"topic": "a"}, user_id="tenant-1")
    other = queue.add("clips", {"topic": "b"}, user_id="tenant-2")
    client = Client(site, token=TENANT_TOKEN)
    assert [row["task_id"] for row in client.get("/api/v1/tasks").json()["tasks"]] == [mine.task_id]
    assert client.get(f"/api/v1/tasks/{other.task_id}").status_code == 404
    assert client.get(f"/api/v1/tasks/{other.task_id}/logs").status_code == 404
    assert client.post(f"/api/v1/tasks/{other.task_id}/cancel").status_code == 404
    assert client.post("/api/v1/acts/cancel", {"ids": [other.task_id]}).status_code == 404
    added = client.post("/api/v1/pipelines/clips/tasks", {"payload": {"topic": "c"}}).json()
    assert queue.get(added["task"]["task_id"]).user_id == "tenant-1"
    claimed = client.post("/api/v1/claims", {"pipeline": "clips", "limit": 10}).json()["leases"]
    assert {lease["task_id"] for lease in claimed} == {mine.task_id, added["task"]["task_id"]}
    refused = [e for e in all_endpoints(site) if e.all_users]
    everyones = {"workers", "purge", "stats", "schedules", "operations", "pipelines", "pipelines/{pipeline}/pause"}
    pages = {"/workers", "/phases", "/schedules", "/operations", "/system", "/metrics", "/scale"}
    assert {e.path for e in refused} >= {f"/api/v1/{path}" for path in everyones} | pages
    for endpoint in refused:
        assert client(endpoint.method, filled(endpoint.path), json={}).status_code == 403, endpoint.path
    assert queue.get(other.task_id).status == "waiting"


# ── credentials ──


def test_without_a_credential_only_this_machine_may_call(local_site: Dashboard) -> None:
    assert Client(local_site).get("/api/v1/overview").status_code == 200
    assert Client(local_site, address="10.0.0.7").get("/api/v1/overview").status_code == 403
    for name in ("x-forwarded-for", "x-forwarded-proto", "forwarded", "x-real-ip", "via"):
        forwarded = Client(local_site).get("/api/v1/overview", headers={name: "10.0.0.7"})
        assert forwarded.status_code == 403, name
        assert "--access" in forwarded.json()["fix"]


@pytest.mark.parametrize("token", ["", "wrong", "viewer-token-012345678", "\u00ff" * 20])
def test_a_wrong_token_is_refused(site: Dashboard, token: str) -> None:
    answer = Client(site).get("/api/v1/overview", headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_the_host_application_decides_who_may_call(queue: Queue) -> None:
    def authorize(request: Request) -> Identity | str | None:
        name = request.headers.get("x-user")
        if name == "root":
            return Identity("root", Role.ADMIN)
        return name

    app = dashboard(queue, authorize=authorize)
    try:
        client = Client(app)
        assert client.get("/api/v1/overview").status_code == 403
        assert client.get("/api/v1/overview", headers={"x-user": "viewer"}).status_code == 200
        task = queue.add("clips")
        act = f"/api/v1/tasks/{task.task_id}/cancel"
        assert client.post(act, headers={"x-user": "viewer"}).status_code == 403
        assert client.post(act, headers={"x-user": "root"}).status_code == 200
        assert queue.get(task.task_id).history[-1].by == "root"
        assert client.get("/api/v1/overview", headers={"x-user": "king"}).status_code == 422
    finally:
        app.close()


@pytest.mark.parametrize("refusal", [None, False])
def test_the_host_application_refuses_with_nothing(queue: Queue, refusal: Any) -> None:
    app = dashboard(queue, authorize=lambda request: refusal)
    try:
        assert Client(app).get("/api/v1/overview").status_code == 403
    finally:
        app.close()


def test_users_of_the_host_application_are_kept_apart(queue: Queue) -> None:
    mine = queue.add("clips", user_id="kim")
    queue.add("clips", user_id="lee")

    async def authorize(request: Request) -> Identity | None:
        return Identity(request.headers["x-user"], Role.OPERATOR, user_id=request.headers["x-user"])

    app = dashboard(queue, authorize=lambda request: authorize(request))  # a function that returns an awaitable
    try:
        tasks = Client(app).get("/api/v1/tasks", headers={"x-user": "kim"}).json()["tasks"]
        assert [task["task_id"] for task in tasks] == [mine.task_id]
        page = Client(app).get("/new", headers={**PAGE, "x-user": "lee"}).text
        foreign = {"x-user": "kim", "x-csrf-token": csrf_of(page), "origin": "http://localhost"}
        assert Client(app).post(f"/api/v1/tasks/{mine.task_id}/cancel", headers=foreign).status_code == 403
    finally:
        app.close()


def test_an_access_file_holds_users_and_tokens(tmp_path: Path) -> None:
    token, hashed = new_token(), hash_password("correct horse", cost=1024)
    path = tmp_path / "access.toml"
    path.write_text(
        f'[tokens.ci]\nrole = "operator"\ntoken = "{token}"\n[users."김"]\npassword = "{hashed}"\nuser = "u1"\n',
        encoding="utf-8",
    )
    found = read_access(path)
    assert found.of_token(token) == Identity("ci", Role.OPERATOR)
    assert found.of_password("김", "correct horse") == Identity("김", Role.VIEWER, "u1")
    assert found.of_password("김", "wrong horse") is None
    assert found.of_password("lee", "correct horse") is None


@pytest.mark.parametrize(
    "text, says",
    [
        ("[tokens.ci]\nrole = 'king'\ntoken = 'xxxxxxxxxxxxxxxxxxxx'", "no role 'king'"),
        ("[tokens.ci]\ntoken = 'short'", "at least 20"),
        ("[tokens.ci]\nrole = 'public'\ntoken = 'xxxxxxxxxxxxxxxxxxxx'", "no role 'public'"),
        ("[tokens.ci]\nrole = 'admin'", "either token or sha256"),
        ("[users.kim]\npassword = 'plain'", "not a hash"),
        ("[user.kim]\npassword = 'x'", "unknown table"),
        ("[users.kim]\npasword = 'x'", "unknown key"),
        ("[users.'a b']\npassword = 'scrypt'", "not a hash"),
        (f"[users.'a b']\npassword = '{HASH}'", "without blanks"),
        (f"[users.kim]\npassword = '{HASH.replace('1024', '65536')}'", "not a hash"),  # 64 MiB for each try
        ("[tokens.ci]\nsha256 = 'abc'", "64 hexadecimal"),
        ("tokens", "not TOML"),
    ],
)
def test_a_mistake_in_an_access_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "access.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=says):
        read_access(path)


def test_password_hashes_are_salted_and_checked() -> None:
    one, two = hash_password(PASSWORD), hash_password(PASSWORD)
    assert one.split(":")[2] != two.split(":")[2]
    assert int(one.split(":")[1]) >= 2**15  # 32 MiB for each try
    assert check_password(PASSWORD, one)
    assert not check_password(PASSWORD + " ", one)
    with pytest.raises(BadInput, match="at least 8"):
        hash_password("short")


# ── sessions ──


def test_a_user_logs_in_and_out(site: Dashboard) -> None:
    client = Client(site)
    assert client.get("/api/v1/overview").status_code == 401
    answer = log_in(client, next="tasks?query=status:failed")
    assert answer.status_code == 303
    assert answer.headers["location"] == "./tasks?query=status:failed"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert client.get("/api/v1/overview").status_code == 200
    kept = client.cookies[COOKIE]
    page = client.get("/login", headers=PAGE).text
    left = client.post("/logout", data={"csrf": csrf_of(page)})
    assert (left.status_code, "Max-Age=0" in left.headers["set-cookie"]) == (303, True)
    client.cookies.set(COOKIE, kept, domain="localhost.local")
    assert client.get("/api/v1/overview").status_code == 401


def test_a_token_can_be_used_on_the_log_in_page(site: Dashboard) -> None:
    client = Client(site)
    assert log_in(client, name="", password="", token=TOKENS["viewer"]).status_code == 303
    assert client.get("/api/v1/overview").status_code == 200


def test_a_page_leads_to_the_log_in_and_back(site: Dashboard) -> None:
    answer = Client(site).get("/", headers=PAGE)
    if answer.status_code != 404:  # the pages are there
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("./login")


@pytest.mark.parametrize(
    "wanted", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "../../x", "a\nb"]
)
def test_log_in_leads_to_no_other_site(site: Dashboard, wanted: str) -> None:
    answer = log_in(Client(site), next=wanted)
    assert answer.headers["location"] == "./"


def test_a_redirect_has_no_raw_text_of_the_request(site: Dashboard) -> None:
    wanted = "tasks?q=조류\r\nSet-Cookie: x=y"
    answer = Client(site).get("/language", params={"lang": "ko", "back": wanted})
    assert answer.status_code == 303
    assert answer.headers["location"] == "./tasks?q=%EC%A1%B0%EB%A5%98%0D%0ASet-Cookie:%20x=y"
    assert log_in(Client(site), next="tasks?q=조류").headers["location"] == "./tasks?q=%EC%A1%B0%EB%A5%98"


def test_the_session_cookie_is_for_https_only_if_the_browser_uses_https(site: Dashboard) -> None:
    client = Client(site)
    assert "Secure" not in log_in(client).headers["set-cookie"]
    page = client.get("/login", headers=PAGE).text
    fields = {"name": "kim", "password": PASSWORD, "csrf": csrf_of(page)}
    # A proxy that ends TLS passes the request on as http; the browser says what it used.
    behind_proxy = client.post("/login", data=fields, headers={"origin": "https://localhost"})
    assert behind_proxy.status_code == 303
    assert "Secure" in behind_proxy.headers["set-cookie"]


def test_a_changed_cookie_is_refused(site: Dashboard) -> None:
    client = Client(site)
    log_in(client)
    cookie = client.cookies[COOKIE]
    for wrong in (cookie[:-1] + ("0" if cookie[-1] != "0" else "1"), "x", ".", cookie.replace(".", ""), "é.é"):
        answer = Client(site).get("/api/v1/overview", headers={"cookie": f"{COOKIE}={wrong}"})
        assert answer.status_code == 401


def test_a_session_ends_after_its_time_and_with_the_password() -> None:
    now = [1000.0]
    sessions = Sessions("k" * 32, clock=lambda: now[0])
    cookie = sessions.make("user", "kim", "mark")
    assert sessions.read(cookie) is not None
    assert Sessions("other" * 10).read(cookie) is None
    text = cookie.partition(".")[0]
    assert sessions.read(f"{text}.{sessions.csrf(text)}") is None  # a CSRF token signs no session
    with pytest.raises(BadInput, match="at least 32"):
        Sessions("short")
    now[0] += KEPT_FOR
    assert sessions.read(cookie) is None
    before, after = hash_password("old password", 1024), hash_password("new password", 1024)
    assert Access().with_user("kim", before, "viewer").fingerprint("kim") != Access().with_user("kim", after, "viewer").fingerprint("kim")  # fmt: skip


def test_a_session_has_the_rights_that_its_user_has_now(queue: Queue) -> None:
    app = dashboard(queue, access=Access().with_user("kim", HASH, "admin"))
    try:
        queue.add("clips", user_id="lee")
        client = Client(app)
        log_in(client)
        assert len(client.get("/api/v1/tasks").json()["tasks"]) == 1
        app.site.authenticator.access = Access().with_user("kim", HASH, "viewer", "tenant-1")
        assert client.get("/api/v1/tasks").json()["tasks"] == []
        assert client.get("/new").status_code == 403
        app.site.authenticator.access = Access().with_user("kim", hash_password(PASSWORD, cost=1024), "admin")
        assert client.get("/api/v1/tasks").status_code == 401  # another password
        app.site.authenticator.access = Access().with_user("lee", HASH, "admin")
        assert client.get("/api/v1/tasks").status_code == 401
    finally:
        app.close()


def test_failed_log_ins_are_limited_by_name_and_by_address(site: Dashboard) -> None:
    client = Client(site)
    for _ in range(5):
        assert log_in(client, password="wrong password").status_code == 401
        assert log_in(Client(site), name="김").status_code == 303  # a right password does not count
    refused = log_in(client)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) <= 60
    assert log_in(Client(site), name="김").status_code == 303

    now = [0.0]
    rate = LogInRate(clock=lambda: now[0])
    for number in range(20):
        rate.begin(f"name {number}", "10.0.0.7")  # counted before it is known to fail: many may be under way
    with pytest.raises(Refused, match="try again"):
        rate.begin("another", "10.0.0.7")
    rate.begin("another", "10.0.0.8")
    now[0] = 61
    rate.begin("another", "10.0.0.7")


def test_what_the_limit_on_log_ins_keeps_is_bounded() -> None:
    now = [0.0]
    rate = LogInRate(clock=lambda: now[0])
    rate.begin("x" * 20_000, "10.0.0.7")
    assert len(max(rate._failures, key=len)) < 200
    for number in range(5_000):
        rate.begin(f"n{number}", f"10.1.{number // 256}.{number % 256}")
    now[0] = 61
    rate.begin("kim", "10.0.0.7")
    assert len(rate._failures) == 2


def test_behind_a_proxy_on_this_machine_the_address_of_the_client_counts(site: Dashboard) -> None:
    def status(number: int, address: str, passed_on_for: str) -> int:
        client = Client(site, address=address)
        page = client.get("/login", headers=PAGE).text
        fields = {"name": f"n{number}", "token": "wrong", "csrf": csrf_of(page)}
        return client.post("/login", data=fields, headers={"x-forwarded-for": passed_on_for}).status_code

    # The last address is what the proxy saw; a client can only write those before it.
    assert {status(number, "127.0.0.1", f"10.9.9.{number}, 10.0.0.7") for number in range(20)} == {401}
    assert status(20, "127.0.0.1", "10.0.0.7") == 429
    assert status(21, "127.0.0.1", "10.0.0.8") == 401
    assert {status(number, "10.0.0.9", f"10.0.1.{number}") for number in range(30, 50)} == {401}
    assert status(50, "10.0.0.9", "10.0.1.50") == 429


def test_addresses_of_one_ipv6_network_count_as_one() -> None:
    rate = LogInRate()
    for number in range(20):
        rate.begin(f"name {number}", f"2001:db8::{number}")
        rate.begin(f"other {number}", f"::ffff:10.0.0.{number}")  # an IPv4 client of a socket for both
    with pytest.raises(Refused, match="try again"):
        rate.begin("another", "2001:db8::ffff")
    rate.begin("another", "2001:db8:0:1::1")
    rate.begin("another", "::ffff:10.0.0.99")


# ── CSRF, rebinding, clickjacking ──


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ],
)
def test_a_request_of_another_site_changes_nothing(
    site: Dashboard, local_site: Dashboard, queue: Queue, headers: dict[str, str]
) -> None:
    task = queue.add("clips")
    logged_in = Client(site)
    log_in(logged_in)
    token = csrf_of(logged_in.get("/login", headers=PAGE).text)
    for client in (Client(local_site), logged_in):
        answer = client.post(f"/api/v1/tasks/{task.task_id}/cancel", headers={**headers, "x-csrf-token": token})
        assert answer.status_code == 403
    assert queue.get(task.task_id).status == "waiting"


def test_a_browser_needs_the_token_of_its_own_session(site: Dashboard, queue: Queue) -> None:
    task = queue.add("clips")
    client, other = Client(site), Client(site)
    log_in(client)
    log_in(other, name="김")
    act = f"/api/v1/tasks/{task.task_id}/cancel"
    assert client.post(act).status_code == 403
    foreign = csrf_of(other.get("/login", headers=PAGE).text)
    assert client.post(act, headers={"x-csrf-token": foreign}).status_code == 403
    own = csrf_of(client.get("/login", headers=PAGE).text)
    same = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert client.post(act, headers={"x-csrf-token": own, **same}).status_code == 200
    assert queue.get(task.task_id).status == "cancelled"


def test_a_form_of_another_site_cannot_use_this_machines_rights(local_site: Dashboard, queue: Queue) -> None:
    task = queue.add("clips")
    own = Client(local_site).post(f"/api/v1/tasks/{task.task_id}/cancel", headers={"origin": "http://localhost"})
    assert own.status_code == 403  # a browser sent it: it needs the token of our pages
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = Client(local_site).post(
            f"/api/v1/tasks/{task.task_id}/cancel", content=b"{}", headers={"content-type": kind}
        )
        assert answer.status_code == 403
    assert queue.get(task.task_id).status == "waiting"


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", ""])
def test_an_unknown_host_is_refused(local_site: Dashboard, host: str) -> None:
    answer = Client(local_site).get("/api/v1/overview", headers={"host": host, "x-forwarded-host": "localhost"})
    assert answer.status_code == 421


def test_named_hosts_are_answered(queue: Queue) -> None:
    app = dashboard(queue, access=access(), hosts=["queue.example.com", "*.apps.example.com"])
    try:
        for host, status in [
            ("queue.example.com:8443", 200),
            ("a.apps.example.com", 200),
            ("queue.example.com.", 200),
            ("example.com", 421),
            ("evilapps.example.com", 421),
        ]:
            assert api(app).get("/api/v1/overview", headers={"host": host}).status_code == status
    finally:
        app.close()


def test_every_response_has_the_headers_against_framing_and_scripts(site: Dashboard) -> None:
    for path in ("/login", "/api/v1/overview", "/nowhere", "/healthz"):
        answer = Client(site).get(path, headers=PAGE)
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
        assert answer.headers["x-frame-options"] == "DENY"
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


# ── sizes, methods ──


def test_a_body_beyond_the_limit_is_refused_before_it_is_read(site: Dashboard) -> None:
    big = api(site).post("/api/v1/claims", content=b"x" * 1_000_001, headers={"content-type": "application/json"})
    assert big.status_code == 413

    async def parts() -> Any:
        for _ in range(30):
            yield b"x" * 100_000

    chunked = api(site).post("/api/v1/claims", content=parts(), headers={"content-type": "application/json"})
    assert chunked.status_code == 413
    log_in_body = Client(site).post("/login", content=b"name=" + b"x" * 20_001)
    assert log_in_body.status_code == 413


def test_requests_and_streams_beyond_the_bounds_are_refused(
    site: Dashboard, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/api/v1/tasks/{queue.add('clips').task_id}/logs/stream"
    monkeypatch.setattr(logs, "_MOST_STREAMS", 0)
    assert api(site).get(path).status_code == 503
    monkeypatch.setattr(pool, "_MOST_WAITING", 0)
    busy = api(site).get("/api/v1/overview")
    assert (busy.status_code, busy.headers["retry-after"]) == (503, "1")


def test_the_cause_of_an_internal_error_is_in_the_log_only(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    def authorize(request: Request) -> str:
        raise RuntimeError("the database of users is away")

    app = dashboard(queue, authorize=authorize)
    try:
        answer = Client(app).get("/api/v1/overview")
        assert (answer.status_code, "users" in answer.text) == (500, False)
        assert "the database of users is away" in caplog.text
    finally:
        app.close()


def test_other_methods_and_paths_are_named(site: Dashboard) -> None:
    answer = api(site)("DELETE", "/api/v1/tasks/t1")
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]
    assert api(site).get("/api/v1/nothing").status_code == 404


def test_secrets_are_masked_at_any_depth(site: Dashboard, queue: Queue) -> None:
    payload = {"topic": "x", "api_key": "abc", "deep": [{"password": {"old": "hunter2", "new": ["hunter3"]}}], "max_tokens": 5}  # fmt: skip
    task = queue.add("clips", payload, metadata={"auth": {"access_token": "zzzzzz"}})
    shown = api(site, "viewer").get(f"/api/v1/tasks/{task.task_id}")
    for secret in ("abc", "hunter2", "hunter3", "zzzzzz"):
        assert f'"{secret}"' not in shown.text
    assert shown.json()["task"]["payload"]["max_tokens"] == 5
    lease = api(site).post("/api/v1/claims", {"pipeline": "clips"}).json()["leases"][0]
    assert lease["payload"] == payload  # a worker needs the values


# ── mounting ──


def test_it_works_under_any_prefix(queue: Queue) -> None:
    inner = dashboard(queue, access=access())
    outer = Starlette(routes=[Mount("/admin/queue", inner)])
    try:
        client = Client(outer, token=TOKENS["viewer"])
        assert client.get("/admin/queue/api/v1/overview").status_code == 200
        browser = Client(outer)
        page = browser.get("/admin/queue/login", headers=PAGE)
        assert 'action="./login"' in page.text
        answer = browser.post(
            "/admin/queue/login",
            data={"name": "kim", "password": PASSWORD, "csrf": csrf_of(page.text), "next": "tasks/a"},
        )
        assert answer.headers["location"] == "./tasks/a"
        assert "Path=/admin/queue" in answer.headers["set-cookie"]
    finally:
        inner.close()
