from ..browsing import axe, browser

__all__ = ["axe", "browser"]
