"""A FUSE file system of one file, `disk`: keeps every write and every flush that reaches it, in
order.

usage: recorder.py MOUNTPOINT BYTES LOG      in the foreground, until it is unmounted
LOG gets one record for each: "w" offset length bytes, or "f" (8-byte numbers); a copy of a live
disk is no
picture of one moment, a prefix of this log is.
"""

import errno
import stat
import struct
import sys
import threading

from fuse import FUSE, FuseOSError, Operations


class Recorder(Operations):
    def __init__(self, size: int, log: str):
        self.content = bytearray(size)
        self.log = open(log, "wb", buffering=0)  # noqa: SIM115
        self.lock = threading.Lock()

    def getattr(self, path, fh=None):
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        if path == "/disk":
            return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": len(self.content)}
        raise FuseOSError(errno.ENOENT)

    def readdir(self, path, fh):
        return [".", "..", "disk"]

    def open(self, path, flags):
        return 0

    def read(self, path, size, offset, fh):
        with self.lock:
            return bytes(self.content[offset : offset + size])

    def write(self, path, data, offset, fh):
        with self.lock:
            self.log.write(b"w" + struct.pack("<QQ", offset, len(data)) + data)
            self.content[offset : offset + len(data)] = data
        return len(data)

    def fsync(self, path, datasync, fh):
        with self.lock:
            self.log.write(b"f")
        return 0

    def truncate(self, path, length, fh=None):
        raise FuseOSError(errno.EPERM)


def read_log(path: str) -> list[tuple[int, bytes] | None]:
    """Writes as (offset, bytes); a flush is None."""
    with open(path, "rb") as file:
        content = file.read()
    out, at = [], 0
    while at < len(content):
        if content[at : at + 1] == b"f":
            out.append(None)
            at += 1
            continue
        offset, length = struct.unpack_from("<QQ", content, at + 1)
        out.append((offset, content[at + 17 : at + 17 + length]))
        at += 17 + length
    return out


if __name__ == "__main__":
    FUSE(
        Recorder(int(sys.argv[2]), sys.argv[3]),
        sys.argv[1],
        foreground=True,
        direct_io=True,  # what the kernel is told to write, it writes at once
        big_writes=True,
        max_write=131072,
        nothreads=True,
    )
