"""The HTML pages: `page_routes` lists them; the log-in and error pages are used by the application itself."""

from onerow.web.pages.basic import error_page, login_page, page_routes

__all__ = ["error_page", "login_page", "page_routes"]
