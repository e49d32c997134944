#!/usr/bin/env python3
"""Takes the files of FOLDER out of the page cache, which needs no privilege, and prints at what
rate they are then read. A rate far above the disk's says that the file system keeps them.
usage: tools/evict_files.py FOLDER"""

import os
import pathlib
import sys
import time

SAMPLE_SIZE = 1 << 30


def evict(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_rate(path):
    """Bytes per second of the file's beginning."""
    buffer = bytearray(1 << 24)
    size = 0
    begin = time.monotonic()
    with open(path, "rb", buffering=0) as file:
        while size < SAMPLE_SIZE and (count := file.readinto(buffer)):
            size += count
    return size / (time.monotonic() - begin)


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    files = sorted(path for path in pathlib.Path(sys.argv[1]).iterdir() if path.is_file())
    for path in files:
        evict(path)
    largest = max(files, key=lambda path: path.stat().st_size)
    print(f"read at {read_rate(largest) / 1e9:.2f} GB/s")
    evict(largest)


if __name__ == "__main__":
    main()
