"""Kill a process at its n-th system call: a small tracer by ptrace, which every Linux has (no strace needed)."""

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable

_TRACE_ME, _CONTINUE_TO_CALL, _SET_OPTIONS = 0, 24, 0x4200
_STOPS_SAY_CALL, _FOLLOW_THREADS, _KILL_WITH_TRACER = 0x1, 0x8, 0x100000
_AT_CALL = signal.SIGTRAP | 0x80
_ANY_THREAD = 0x40000000  # __WALL


def _ptrace(request: int, pid: int, value: int = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(request, pid, None, ctypes.c_void_p(value)) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace request {request:#x} was refused")


def killed_at(number: int | None, prepare: Callable[[], Callable[[], object]]) -> int:
    """Run the call that `prepare` returns in a child process and kill it before its n-th system call (None: never).

    Return the number of system calls that it began; less than `number` if it ended before.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act = prepare()
            _ptrace(_TRACE_ME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            act()
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        finally:
            os._exit(code)
    return _follow(child, number)


def _follow(child: int, number: int | None) -> int:
    _, status = os.waitpid(child, 0)
    if not os.WIFSTOPPED(status):
        raise AssertionError("the operation could not be prepared; its traceback is above")
    _ptrace(_SET_OPTIONS, child, _STOPS_SAY_CALL | _FOLLOW_THREADS | _KILL_WITH_TRACER)
    _ptrace(_CONTINUE_TO_CALL, child)
    calls = 0
    inside: set[int] = set()  # threads between the beginning and the end of a call
    while True:
        thread, status = os.waitpid(-1, _ANY_THREAD)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if thread == child:
                if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
                    raise AssertionError(f"the traced operation ended with exit code {os.WEXITSTATUS(status)}")
                return calls
            continue
        passed_on = 0
        if os.WSTOPSIG(status) == _AT_CALL:
            if thread in inside:
                inside.discard(thread)
            else:
                inside.add(thread)
                calls += 1
                if calls == number:
                    os.kill(child, signal.SIGKILL)
                    _reap(child)
                    return calls
        elif os.WSTOPSIG(status) not in (signal.SIGSTOP, signal.SIGTRAP):
            passed_on = os.WSTOPSIG(status)
        _ptrace(_CONTINUE_TO_CALL, thread, passed_on)


def _reap(child: int) -> None:
    while True:
        thread, status = os.waitpid(-1, _ANY_THREAD)
        if thread == child and (os.WIFSIGNALED(status) or os.WIFEXITED(status)):
            return
