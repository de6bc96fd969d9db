"""A Django project with the dashboard at /queue, for those who are logged in to Django: python -m … STORE FOLDER PORT."""

import sys
from pathlib import Path
from typing import Any

import django
import uvicorn
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.management import call_command
from django.http import HttpRequest, HttpResponse
from django.urls import path
from starlette.requests import Request

from onerow import Queue
from onerow.web import Identity, Role, dashboard


def home(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"Django, {request.user}")


def enter(request: HttpRequest, name: str) -> HttpResponse:
    """Log in without a password: only this test calls it."""
    from django.contrib.auth import get_user_model, login

    login(request, get_user_model().objects.get(username=name), "django.contrib.auth.backends.ModelBackend")
    return HttpResponse(name)


urlpatterns = [path("", home), path("enter/<name>", enter)]


def _user(session_key: str) -> Identity | None:
    from django.contrib.auth import get_user_model
    from django.contrib.sessions.backends.db import SessionStore

    number = SessionStore(session_key).get("_auth_user_id")
    user = None if number is None else get_user_model().objects.filter(pk=number).first()
    if user is None:
        return None
    return Identity(user.get_username(), Role.OPERATOR if user.is_staff else Role.VIEWER)


async def authorize(request: Request) -> Identity | None:
    return await sync_to_async(_user)(request.cookies.get("sessionid", ""))


def main(store: str, folder: str, port: str) -> None:
    settings.configure(
        SECRET_KEY="only for tests", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, USE_TZ=True,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(folder) / "django.db"}},
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ],
    )  # fmt: skip
    django.setup()
    call_command("migrate", verbosity=0)
    from django.contrib.auth import get_user_model

    get_user_model().objects.create_user("kim", is_staff=True)
    get_user_model().objects.create_user("lee")
    of_django, of_queue = get_asgi_application(), dashboard(Queue(store), authorize=authorize)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or scope["path"].startswith("/queue/"):  # Django knows no lifespan
            await of_queue({**scope, "root_path": "/queue"}, receive, send)
        else:
            await of_django(scope, receive, send)

    uvicorn.run(application, host="127.0.0.1", port=int(port), log_config=None, timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
