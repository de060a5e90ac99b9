"""`python confined.py GROUP... -- COMMAND...`: a command as systemd runs it with SystemCallFilter= and no W+X memory.

What the groups of `systemd-analyze syscall-filter` do not allow is refused with EPERM; a group that begins with ~ is
taken away again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys

PR_SET_NO_NEW_PRIVS = 38
PR_SET_MDWE = 65
ALLOW = 0x7FFF0000
REFUSE = 0x00050000 | errno.EPERM


def members(group: str) -> set[str]:
    """The system calls of a group, those of the groups in it too."""
    text = subprocess.run(["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True)
    found: set[str] = set()
    for line in text.stdout.splitlines()[1:]:
        name = line.strip()
        if name.startswith("@"):
            found |= members(name)
        elif name and not name.startswith("#"):
            found.add(name)
    return found


def confine(calls: set[str]) -> None:
    """Refuse this process all other system calls, and memory that is writable and executable, for good."""
    libc, seccomp = ctypes.CDLL(None, use_errno=True), ctypes.CDLL("libseccomp.so.2", use_errno=True)
    seccomp.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(seccomp.seccomp_init(REFUSE))
    for name in sorted(calls):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            assert seccomp.seccomp_rule_add(rules, ctypes.c_uint32(ALLOW), number, 0) == 0, name
    # Kernels before 6.3 do not have it.
    libc.prctl(PR_SET_MDWE, 1, 0, 0, 0)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert seccomp.seccomp_load(rules) == 0


if __name__ == "__main__":
    at = sys.argv.index("--")
    allowed: set[str] = set()
    for word in sys.argv[1:at]:
        allowed = allowed - members(word[1:]) if word.startswith("~") else allowed | members(word)
    confine(allowed)
    os.execvp(sys.argv[at + 1], sys.argv[at + 1 :])
