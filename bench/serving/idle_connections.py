#!/usr/bin/env python3
"""What clients cost that stay connected and ask nothing.

usage: bench/serving/idle_connections.py ATOM CHECKPOINT [--connections 10000]

Opens them, each with one answered request, and says what each takes of the server's memory, how much
CPU they take while idle, and how long others' answers take beside them. Fails when one takes more
than 8 KiB, all of them 20 ms of CPU a second, or one is not answered at the end.
"""
import argparse
import os
import pathlib
import resource
import socket
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "server"))
from server_process import ServerProcess  # noqa: E402

REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
MAX_BYTES = 8 << 10
MAX_BUSY = 0.02
QUIET_SECONDS = 5
NUM_PROBES = 50


def resident(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_answered(connection):
    connection.sendall(REQUEST)
    return connection.recv(4096).startswith(b"HTTP/1.1 200")


def answer_ms(server):
    times = []
    for _ in range(NUM_PROBES):
        begin = time.monotonic()
        status = server.post("/v1/completions", {"prompt": "tar", "max_tokens": 1})[0]
        times.append((time.monotonic() - begin) * 1e3)
        assert status == 200, status
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("atom")
    parser.add_argument("checkpoint")
    parser.add_argument("--connections", type=int, default=10000)
    arguments = parser.parse_args()
    files = arguments.connections + 1000
    resource.setrlimit(resource.RLIMIT_NOFILE,
                       (files, max(files, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    with ServerProcess(arguments.atom, arguments.checkpoint, "--idle-timeout", 3600) as server:
        pid = server.process.pid
        alone = answer_ms(server)
        before = resident(pid)
        connections = []
        for _ in range(arguments.connections):
            connection = socket.create_connection((server.host, server.port), timeout=120)
            connections.append(connection)
            assert is_answered(connection)
        each = (resident(pid) - before) / arguments.connections
        busy = cpu_seconds(pid)
        time.sleep(QUIET_SECONDS)
        busy = (cpu_seconds(pid) - busy) / QUIET_SECONDS
        beside = answer_ms(server)
        all_answered = all(map(is_answered, connections))
        for connection in connections:
            connection.close()
    print(f"{arguments.connections} idle connections: {each / 1024:.2f} KiB each, {busy * 1e3:.1f} ms "
          f"of CPU a second; an answer of one token in {alone:.1f} ms without and {beside:.1f} ms "
          f"beside them; all answered at the end: {all_answered}")
    sys.exit(0 if each <= MAX_BYTES and busy <= MAX_BUSY and all_answered else 1)


if __name__ == "__main__":
    main()
