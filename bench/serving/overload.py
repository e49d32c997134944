#!/usr/bin/env python3
"""Sends ten times what the server can do, and checks that it still does what it can.

usage: bench/serving/overload.py ATOM CHECKPOINT [--seconds 60] [--factor 10]

Passes when requests too many get 429, those taken are served at 95 % of the peak at least, and the
memory of server and engine stays flat.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "server"))
from server_process import ServerProcess  # noqa: E402

WORK = ["--input-len", "16", "--output-len", "400"]
MAX_GROWTH = 4 << 20


def resident(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def bench(arguments, server, result, *flags):
    subprocess.run([arguments.atom, "bench", "serve", "--base-url", server.url, "--no-progress",
                    *arguments.client_flags, *WORK, *map(str, flags),
                    "--save-result", str(result)], stdout=subprocess.DEVNULL, check=False)
    return json.loads(result.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("atom")
    parser.add_argument("checkpoint")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--factor", type=float, default=10)
    parser.add_argument("--peak-prompts", type=int, default=600,
                        help="requests that the peak is measured with")
    arguments = parser.parse_args()
    # A folder of nothing but a config.json is served with made-up weights and without text.
    has_tokenizer = (pathlib.Path(arguments.checkpoint) / "tokenizer.json").exists()
    engine_flags = [] if has_tokenizer else ["--skip-tokenizer-init", "--load-dummy", "random"]
    arguments.client_flags = (["--tokenizer", arguments.checkpoint] if has_tokenizer
                              else ["--vocab-size", 1000])
    with tempfile.TemporaryDirectory() as folder, \
            ServerProcess(arguments.atom, arguments.checkpoint, *engine_flags,
                          "--max-model-len", 512, "--max-num-seqs", 64,
                          "--max-num-waiting", 64) as server:
        sys.exit(overload(arguments, server, pathlib.Path(folder) / "result.json"))


def overload(arguments, server, result):
    peak = bench(arguments, server, result, "--num-prompts", arguments.peak_prompts,
                 "--max-concurrency", 128)
    capacity = peak["request_throughput"]
    rate = capacity * arguments.factor
    pids = [server.process.pid, *server.engine_pids()]
    sizes = []
    stop = threading.Event()

    def watch():
        while not stop.wait(1):
            sizes.append([resident(pid) for pid in pids])

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.monotonic()
    after = bench(arguments, server, result, "--num-prompts", int(rate * arguments.seconds),
                  "--request-rate", rate)
    seconds = time.monotonic() - begin
    stop.set()
    watcher.join()
    goodput = after["request_throughput"] / capacity
    # Memory settles while the queue fills for the first time.
    early, late = sizes[len(sizes) // 4], sizes[-1]
    growth = [last - first for first, last in zip(early, late)]
    print(f"peak {capacity:.0f} requests/s; offered {rate:.0f}/s for {seconds:.0f} s: "
          f"{after['completed']} completed, {after['failed']} refused; "
          f"{after['request_throughput']:.0f}/s = {goodput:.1%} of the peak; memory of server and "
          f"engine {', '.join(f'{size / 2**20:+.2f} MiB' for size in growth)}")
    only_429 = set(after.get("errors_by_kind", {})) <= {"HTTP 429"}
    ready = server.request("GET", "/readyz")[0] == 200
    passed = goodput >= 0.95 and max(growth) <= MAX_GROWTH and after["failed"] > 0 and only_429
    return 0 if passed and ready else 1


if __name__ == "__main__":
    main()
