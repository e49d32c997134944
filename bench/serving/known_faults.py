#!/usr/bin/env python3
"""Does again, one by one, what once harmed a server or puzzled its clients, to one build or to two.

usage: bench/serving/known_faults.py ATOM CHECKPOINT [--before OTHER_ATOM] [--only WORD ...]

Prints a table in Markdown: what was done, what came of it with OTHER_ATOM and with ATOM, and whether
ATOM held. Exits with 1 unless it always did. --only: the cases whose name has one of the words. The
older a build, the more of the machine a case may take: up to 2 GiB and some seconds of a core.
"""
import argparse
import sys
import time

import fault_attacks
import fault_requests
from fault_build import Build


def name_of(case):
    return case.__doc__.splitlines()[0].rstrip(".")


def run(case, build):
    """(whether the build held, what was seen)"""
    try:
        return case(build)
    except Exception as error:  # A build may fail in any way: that is what is looked for.
        return False, f"{type(error).__name__}: {str(error)[-200:]}".replace("\n", " ")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("atom")
    parser.add_argument("checkpoint")
    parser.add_argument("--before")
    parser.add_argument("--only", nargs="+", default=[""])
    arguments = parser.parse_args()
    builds = [Build(atom, arguments.checkpoint)
              for atom in (arguments.before, arguments.atom) if atom]
    cases = [case for case in (*fault_attacks.CASES, *fault_requests.CASES)
             if any(word in name_of(case) for word in arguments.only)]
    print("| what | " + "before | " * (len(builds) - 1) + "now | holds |")
    print("| --- | " + "--- | " * len(builds) + "--- |", flush=True)
    failed, begin = 0, time.monotonic()
    for case in cases:
        results = [run(case, build) for build in builds]
        seen = " | ".join(text.replace("|", "\\|") for _, text in results)
        print(f"| {name_of(case)} | {seen} | {'yes' if results[-1][0] else 'NO'} |", flush=True)
        failed += not results[-1][0]
    print(f"\n{len(cases)} cases, {failed} of them do not hold, {time.monotonic() - begin:.0f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
