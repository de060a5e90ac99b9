"""Executors without threads: work is done at once, or when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class Inline(Executor):
    """Does it at once, in the caller's thread."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **keywords))
        except Exception as error:
            future.set_exception(error)
        return future


class Slow(Inline):
    """Work that ends when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, work: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: work(*args, **keywords)))
        return future

    def finish(self) -> None:
        for future, work in self.waiting:
            future.set_result(work())
        self.waiting.clear()
