#!/usr/bin/env python3
"""Tokens per second of `atom generate` with its default threads, against one thread, while none, one
and two busy loops for each core run beside it. The bar: never under 0.9 of one thread.

    tools/bench_shared_cpu.py [--atom FILE]... [--model FOLDER] [--tokens N] [--rounds N]

With several --atom all of them take turns, so that two builds are compared in one run.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys

TOKENS_PER_SECOND = re.compile(r"([0-9.]+) tokens/s")
# Of one answer: beside two loops a core a build without care for them gave 8 tokens/s.
SLOWEST_RUN_S = 120


def tokens_per_second(atom, model, tokens, num_threads):
    """0 for an answer that did not come to its end."""
    command = [atom, "generate", model, "Once", "--max-tokens", str(tokens), "--ignore-eos"]
    if num_threads:
        command += ["--num-threads", str(num_threads)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=SLOWEST_RUN_S)
    except subprocess.TimeoutExpired:
        return 0.0
    found = TOKENS_PER_SECOND.search(run.stderr)
    if run.returncode != 0 or not found:
        sys.exit(f"{' '.join(command)}: exit code {run.returncode}\n{run.stderr}")
    return float(found.group(1))


class BusyLoops:
    """Processes that never sleep."""

    def __init__(self, count):
        self.count = count
        self.processes = []

    def __enter__(self):
        for _ in range(self.count):
            self.processes.append(subprocess.Popen(["sh", "-c", "while :; do :; done"]))

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def measure(options, loops_per_core):
    """{(executable, threads): median tokens/s}; threads 0 is the default."""
    samples = {}
    with BusyLoops(loops_per_core * len(os.sched_getaffinity(0))):
        for _ in range(options.rounds):
            for atom in options.atom:
                for num_threads in (0, 1):
                    rate = tokens_per_second(atom, options.model, options.tokens, num_threads)
                    samples.setdefault((atom, num_threads), []).append(rate)
    return {key: statistics.median(rates) for key, rates in samples.items()}


def main():
    parser = argparse.ArgumentParser(
        prog="tools/bench_shared_cpu.py", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--atom", action="append", help="default build/release/atom")
    parser.add_argument("--model", default="models/tldr-8m")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    options.atom = options.atom or ["build/release/atom"]
    print(f"{'loops per core':>14}  {'default':>8}  {'1 thread':>8}  {'ratio':>6}  executable")
    for loops_per_core in (0, 1, 2):
        medians = measure(options, loops_per_core)
        for atom in options.atom:
            default, single = medians[atom, 0], medians[atom, 1]
            ratio = default / single if single else float("nan")
            print(f"{loops_per_core:>14}  {default:>8.1f}  {single:>8.1f}  {ratio:>6.2f}  {atom}",
                  flush=True)


if __name__ == "__main__":
    main()
