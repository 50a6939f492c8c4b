"""Writing a file all or nothing."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

__all__ = ["replacing"]


class NoFolderError(FileNotFoundError, RuntimeError):
    """There is no folder to save into: Python's error and PyTorch's."""


@contextlib.contextmanager
def replacing(path: str | bytes | os.PathLike[Any]) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the block ends well. On any error, Ctrl-C included, it is removed
    and `path` stays as it was. A link is followed, so that the file it points to is replaced; the new file has the
    permissions of the old one. A device or a pipe is never replaced, it is written to."""
    target = os.path.realpath(os.fsdecode(path))
    old_mode = _mode_to_replace(path, target)
    if old_mode is not None and not stat.S_ISREG(old_mode):
        with open(target, "wb") as file:
            yield file
        return
    permissions = 0o666 if old_mode is None else stat.S_IMODE(old_mode)
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name[:100]}.{os.getpid()}-{os.urandom(6).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(temporary, flags, permissions & 0o666)
    except FileNotFoundError:
        raise NoFolderError(f"cannot save to {target}: Parent directory {folder} does not exist.") from None
    try:
        with open(descriptor, "wb") as file:
            if old_mode is not None:
                os.fchmod(file.fileno(), permissions)  # not narrowed by the umask
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _mode_to_replace(path: str | bytes | os.PathLike[Any], target: str) -> int | None:
    """The mode of what `path` leads to, None if there is nothing yet. Refuses what a plain open for writing would
    refuse, before any data is written."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if not os.fspath(path):
            raise FileNotFoundError("cannot save to a path without a name") from None
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"cannot save to {target}: it is a folder")
    if not os.access(target, os.W_OK):
        raise PermissionError(f"cannot save to {target}: it must not be written to")
    return mode


def _sync_folder(folder: str) -> None:
    """Make the new name durable. Some file systems cannot sync a folder; the file itself is safe by then."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
