"""A FUSE file system over a folder on which rename is not atomic and what was written is visible
late.

usage: late_fs.py FOLDER MOUNTPOINT SECONDS      in the foreground, until it is unmounted
Renaming a folder fails (EXDEV), as on stores of objects; a file that was closed has the size 0 and
no bytes
for those who open it within SECONDS after that. Each call that changes something is a line in
FOLDER.log.
With the words NAME OFFSET in FOLDER.hang the server stops itself as soon as a file of that name is
read from
there on, but for single bytes; with an OFFSET of -1, as soon as it is looked at. With them in
FOLDER.broken
such a read fails (EIO). Each write takes the seconds that are in FOLDER.slow. With text in
FOLDER.stop the server stops itself before the first change whose line begins with it.
"""

import contextlib
import errno
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

from fuse import FUSE, FuseOSError, Operations


class LateFs(Operations):
    def __init__(self, folder: str, late_s: float):
        self.folder, self.late_s = folder, late_s
        self.closed: dict[str, float] = {}  # when it will be visible
        self.log = open(folder + ".log", "a", buffering=1)  # noqa: SIM115

    def note(self, line: str) -> None:
        self.log.write(line + "\n")
        with contextlib.suppress(FileNotFoundError):
            text = Path(f"{self.folder}.stop").read_text()
            if text and line.startswith(text):
                os.kill(os.getpid(), signal.SIGSTOP)

    def real(self, path: str) -> str:
        return self.folder + path

    def visible(self, path: str) -> bool:
        return time.monotonic() >= self.closed.get(path, 0.0)

    def getattr(self, path, fh=None):
        if self.told("hang", path, -1):
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            of = os.lstat(self.real(path))
        except OSError as error:
            raise FuseOSError(error.errno) from None
        keys = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid", "st_mtime")
        out = {key: getattr(of, key) for key in keys}
        if fh is None and not self.visible(path):
            out["st_size"] = 0
        return out

    def readdir(self, path, fh):
        return [".", "..", *os.listdir(self.real(path))]

    def mkdir(self, path, mode):
        self.note(f"mkdir {path}")
        os.mkdir(self.real(path), mode)

    def rmdir(self, path):
        self.note(f"rmdir {path}")
        os.rmdir(self.real(path))

    def unlink(self, path):
        self.note(f"unlink {path}")
        os.unlink(self.real(path))
        self.closed.pop(path, None)

    def rename(self, old, new):
        self.note(f"rename {old} {new}")
        if os.path.isdir(self.real(old)):
            raise FuseOSError(errno.EXDEV)
        os.rename(self.real(old), self.real(new))

    def create(self, path, mode, fi=None):
        self.note(f"create {path}")
        return os.open(self.real(path), os.O_RDWR | os.O_CREAT, mode)

    def open(self, path, flags):
        real = self.real(path) if self.visible(path) else os.devnull
        return os.open(real, flags & ~os.O_DIRECT)

    def told(self, what, path, offset):
        try:
            words = Path(f"{self.folder}.{what}").read_text().split()
        except FileNotFoundError:
            return False
        if not words:  # it is just being written
            return False
        name, first = words
        return Path(path).name == name and offset >= int(first)

    def read(self, path, size, offset, fh):
        if size > 1 and self.told("hang", path, offset):
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.told("broken", path, offset):
            raise FuseOSError(errno.EIO)
        return os.read(fh, 0) if os.fstat(fh).st_rdev else os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        with contextlib.suppress(FileNotFoundError):
            time.sleep(float(Path(f"{self.folder}.slow").read_text()))
        return os.pwrite(fh, data, offset)

    def truncate(self, path, length, fh=None):
        os.truncate(self.real(path), length)

    def fsync(self, path, datasync, fh):
        self.note(f"fsync {path}")
        os.fsync(fh)

    def fsyncdir(self, path, datasync, fh):
        self.note(f"fsyncdir {path}")

    def release(self, path, fh):
        if fcntl.fcntl(fh, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
            self.closed[path] = time.monotonic() + self.late_s
        os.close(fh)


if __name__ == "__main__":
    FUSE(
        LateFs(sys.argv[1], float(sys.argv[3])),
        sys.argv[2],
        foreground=True,
        direct_io=True,
        attr_timeout=0,
        entry_timeout=0,
        nothreads=True,
    )
