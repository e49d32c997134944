#!/usr/bin/env python3
"""Compares the front ends of two builds: the same load on one and on the other, in turn.

usage: bench/frontend/compare.py ATOM CHECKPOINT BUILD_BEFORE BUILD_AFTER [--rounds 7]

Each build folder has bench/frontend_server and bench/stub_engine_core (-DATOM_BUILD_BENCH=ON); ATOM is
the load generator for both. Prints, of short requests and of long streams, the medians of each and of
the ratios, after over before: what comes in a second, and the CPU time of the front end for each,
which others on the machine disturb least.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

CONCURRENCY = 64
# Name, tokens of an answer, requests of a round.
LOADS = (("requests of one token", 1, 20000),
         ("streamed tokens", 1024, 1280))


class FrontEnd:
    def __init__(self, build, checkpoint):
        folder = pathlib.Path(build) / "bench"
        self.log = tempfile.NamedTemporaryFile(mode="w+")
        self.process = subprocess.Popen(
            [folder / "frontend_server", checkpoint, folder / "stub_engine_core"],
            stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 60
        while not (match := re.search(r"serving stub at (\S+)", self.output())):
            if time.monotonic() > deadline or self.process.poll() is not None:
                sys.exit(f"{folder}/frontend_server does not start: {self.output()}")
            time.sleep(0.01)
        self.url = match[1]

    def output(self):
        return pathlib.Path(self.log.name).read_text()

    def cpu_seconds(self):
        """(of the program, and with the kernel's for it)"""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        user, system = (int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:13])
        return user, user + system

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def load(arguments, front_end, output_len, num_prompts):
    """What came in a second, and CPU microseconds for each: the program's, and with the kernel's."""
    before = front_end.cpu_seconds()
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "result.json"
        subprocess.run(
            [arguments.atom, "bench", "serve", "--base-url", front_end.url, "--no-progress",
             "--tokenizer", arguments.checkpoint, "--input-len", "16", "--output-len", str(output_len),
             "--num-prompts", str(num_prompts), "--max-concurrency", str(CONCURRENCY),
             "--save-result", str(result)],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        figures = json.loads(result.read_text())
    assert figures["completed"] == num_prompts, figures
    count = num_prompts if output_len == 1 else num_prompts * output_len
    busy = [(after - then) / count * 1e6 for after, then in zip(front_end.cpu_seconds(), before)]
    return count / figures["duration"], *busy


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("atom")
    parser.add_argument("checkpoint")
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    front_ends = [FrontEnd(build, arguments.checkpoint)
                  for build in (arguments.before, arguments.after)]
    try:
        for name, output_len, num_prompts in LOADS:
            rounds = []
            for number in range(arguments.rounds + 1):
                # Each goes first in turn; the first round warms up.
                order = (0, 1) if number % 2 else (1, 0)
                figures = [None, None]
                for index in order:
                    figures[index] = load(arguments, front_ends[index], output_len, num_prompts)
                if number > 0:
                    rounds.append(figures)
            for title, index in (("a second", 0), ("user CPU us each", 1), ("CPU us each", 2)):
                before, after = ([figures[build][index] for figures in rounds] for build in (0, 1))
                ratio = statistics.median(new / old for new, old in zip(after, before))
                print(f"{name}, {title}: {statistics.median(before):.4g} before, "
                      f"{statistics.median(after):.4g} after, ratio {ratio:.3f} (medians of "
                      f"{arguments.rounds})", flush=True)
    finally:
        for front_end in front_ends:
            front_end.stop()


if __name__ == "__main__":
    main()
