"""The hook in training programs: reports each optimizer step of PyTorch to the preloaded shim, which records it.

Runs in the interpreter of the program, whatever its version: only the standard library, nothing of Barograph. Nothing
is imported before the program has imported `torch.optim`, and whatever fails here ends the hook, not the program.
"""

from __future__ import annotations

import os
import sys
from time import monotonic_ns as _now
from time import process_time_ns as _processor_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Not imported by a program that does not do so: the start of each Python is as fast as without the hook.
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from typing import Any

_OPTIMIZER = "torch.optim.optimizer"
_COLLECTIVES = (
    "all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "barrier", "gather", "scatter",
)  # fmt: skip
_TIMED_BACKENDS = ("gloo", "mpi")
"""Those whose collectives return when they are complete. On others a call returns at once, on accelerators."""


class Steps:
    """The steps of this process."""

    def __init__(self) -> None:
        import ctypes
        import weakref

        class Record(ctypes.Structure):
            """`struct training_step`."""

            _fields_ = (
                *((name, ctypes.c_uint64) for name in ("enter", "exit", "elsewhere", "cpu", "updated", "bytes")),
                ("name", ctypes.c_char_p),
            )

        library = ctypes.CDLL(None)
        self._start = library.barograph_training_start
        self._put = library.barograph_training_step
        self._record: Any = Record()
        self._place = ctypes.byref(self._record)
        self._put.restype = None
        self._optimizers: weakref.WeakKeyDictionary[Any, tuple[bytes, int]] = weakref.WeakKeyDictionary()
        """Name of its steps, and bytes of its parameters."""
        self._kinds: list[str] = []
        self._begun = False
        self._records = self._has_others = False
        self._depth = 0
        """Of nested step functions: one may call that of its base class."""
        self._entered = 0
        self._updated = 0
        self._elsewhere = 0
        self._in_backward = False
        self._backward = 0
        """When the last backward pass returned, 0 for none since the last step."""
        self._complete = 0
        """When the last gradient of this worker was complete in it, or when it began."""
        self._used = self._used_complete = self._used_backward = 0
        """Processor time: up to the last record, when the gradient was complete, and when the pass returned."""

    def begin_step(self) -> None:
        """An optimizer is about to update its parameters."""
        if self._backward > self._entered:
            self._depth = 0  # an earlier step has raised
        self._depth += 1
        if self._depth == 1:
            self._entered = _now()

    def end_step(self, optimizer: Any) -> None:
        """It has updated them."""
        self._depth = max(self._depth - 1, 0)
        if self._depth or self._in_backward:
            return
        now = _now()
        if self._records:
            self._write(optimizer)
        elif not self._begun:
            self._begin(optimizer)
        # With a closure, the passes are within the step.
        self._updated = now - max(self._entered, self._backward) if self._has_others else 0
        self._elsewhere = self._backward = 0

    def backward(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """A backward pass, in which gradients are also reduced over the workers."""
        if self._in_backward or not self._records:
            return function(*arguments, **named)
        if self._backward:
            # Gradients are accumulated over several passes: only the last one ends the step.
            self._elsewhere += self._backward - self._complete
        self._in_backward, self._complete, self._used_complete = True, _now(), _processor_time()
        try:
            return function(*arguments, **named)
        finally:
            self._in_backward, self._backward, self._used_backward = False, _now(), _processor_time()

    def collective(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """A collective that the program calls by itself."""
        began = _now()
        try:
            return function(*arguments, **named)
        finally:
            if not self._in_backward:
                self._elsewhere += _now() - began

    def _begin(self, optimizer: Any) -> None:
        self._begun = True
        rank, size = 0, 1
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            rank, size = distributed.get_rank(), distributed.get_world_size()
        self._records = bool(self._start(rank, size))
        self._has_others = self._records and size > 1
        self._known(optimizer)
        if not self._has_others:
            return
        _wrap(sys.modules["torch.autograd"], "backward", self.backward)
        self._watch_gradients(optimizer)
        if distributed is not None and str(distributed.get_backend()) in _TIMED_BACKENDS:
            for module in (distributed, sys.modules.get("torch.distributed.distributed_c10d")):
                for name in _COLLECTIVES:
                    _wrap(module, name, self.collective)

    def _watch_gradients(self, optimizer: Any) -> None:
        """Time the gradient of the first parameter, which a backward pass usually computes last."""
        for parameter in optimizer.param_groups[0]["params"][:1]:
            parameter.register_hook(self._note_gradient)

    def _note_gradient(self, gradient: Any) -> None:
        self._complete, self._used_complete = _now(), _processor_time()

    _note_gradient.__torch_unserializable__ = True  # type: ignore[attr-defined]

    def _write(self, optimizer: Any) -> None:
        record = self._record
        record.name, record.bytes = self._known(optimizer)
        record.elsewhere, record.updated = self._elsewhere, self._updated
        if self._backward:
            record.enter, record.exit = self._complete, self._backward
            record.cpu = max(self._used_complete - self._used, 0)
            self._used = self._used_backward
        else:
            record.enter = record.exit = self._entered
            record.cpu = 0
        self._put(self._place)

    def _known(self, optimizer: Any) -> tuple[bytes, int]:
        known = self._optimizers.get(optimizer)
        if known is None:
            kind = type(optimizer).__name__
            self._kinds.append(kind)
            number = self._kinds.count(kind)
            name = "step " + kind + (" " + str(number) if number > 1 else "")
            parameters = (
                [one for group in optimizer.param_groups for one in group["params"]] if self._has_others else []
            )
            known = name.encode(), sum(one.numel() * one.element_size() for one in parameters)
            self._optimizers[optimizer] = known
        return known


def install() -> None:
    """Wait for the import of torch.optim, where this process is to be recorded."""
    environment = os.environ
    if not environment.get("BAROGRAPH_RING_DIR") or environment.get("BAROGRAPH_DISABLE", "0") not in ("", "0"):
        return
    sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds torch.optim.optimizer by the other finders, and hooks into it once it is loaded."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if fullname != _OPTIMIZER:
            return None
        sys.meta_path.remove(self)
        import importlib.util

        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            try:
                _hook(module)
            except Exception:  # the program goes on without
                pass

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _hook(module: Any) -> None:
    """Hook into the steps of all optimizers: by the hooks of PyTorch 2, or as PyTorch 1 does for its profiler."""
    steps = Steps()
    if hasattr(module, "register_optimizer_step_post_hook"):
        torch = sys.modules["torch"]

        def before(optimizer: Any, arguments: Any, named: Any) -> None:
            if not _is_compiling(torch):
                _quietly(steps.begin_step)

        def after(optimizer: Any, arguments: Any, named: Any) -> None:
            if not _is_compiling(torch):
                _quietly(steps.end_step, optimizer)

        module.register_optimizer_step_pre_hook(before)
        module.register_optimizer_step_post_hook(after)
        return
    prepare = module.Optimizer._hook_for_profile

    def hook_for_profile(optimizer: Any) -> None:
        prepare(optimizer)
        kind = type(optimizer)
        if not getattr(kind.step, "barograph", False):
            kind.step = _timed(steps, kind.step)

    module.Optimizer._hook_for_profile = hook_for_profile


def _timed(steps: Steps, step: Callable[..., Any]) -> Callable[..., Any]:
    def timed(self: Any, *arguments: Any, **named: Any) -> Any:
        _quietly(steps.begin_step)
        result = step(self, *arguments, **named)
        _quietly(steps.end_step, self)
        return result

    timed.__dict__.update(step.__dict__, __wrapped__=step, __doc__=step.__doc__, __name__=step.__name__, barograph=True)
    return timed


def _wrap(module: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a function of a module by one that calls `around` with it and its arguments."""
    function = getattr(module, name, None)
    if function is None or getattr(function, "barograph", False):
        return

    def wrapped(*arguments: Any, **named: Any) -> Any:
        return around(function, *arguments, **named)

    for attribute in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
        setattr(wrapped, attribute, getattr(function, attribute, None))
    wrapped.__dict__.update(getattr(function, "__dict__", {}), __wrapped__=function, barograph=True)
    setattr(module, name, wrapped)


def _is_compiling(torch: Any) -> bool:
    """Whether PyTorch's compiler traces this call, which then leaves out what would break the graph."""
    probe = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return probe is not None and probe()


def _quietly(function: Callable[..., None], *arguments: Any) -> None:
    try:
        function(*arguments)
    except Exception:  # the program goes on
        pass
