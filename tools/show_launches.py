#!/usr/bin/env python3
"""Shows what each kernel of a recorded step takes and adds to it, from a log that liblaunch_log.so
wrote (bench/gpu/launch_log.cc), which may be compressed by gzip.

Of the graph that was replayed most, medians over replays, in microseconds: "adds", from the end of
the launch before to this one's; "takes", from its own beginning; "early", how long before the end
of the one before it began. A profiler makes launches some tenths of a microsecond longer."""

import argparse
import collections
import gzip
import re
import shutil
import statistics
import subprocess
import sys

Launch = collections.namedtuple("Launch", "begin end graph blocks threads registers name")


def read(path):
    opened = gzip.open(path, "rt") if path.endswith(".gz") else open(path)
    launches = []
    with opened as lines:
        for line in lines:
            fields = line.rstrip("\n").split(" ", 6)
            if len(fields) == 7:
                launches.append(Launch(*map(int, fields[:6]), fields[6]))
    return sorted(launches)


def replays_of(launches):
    """The replays of the graph that was launched most, each a list of launches."""
    graphs = collections.Counter(launch.graph for launch in launches if launch.graph)
    if not graphs:
        sys.exit("show_launches: no kernel of the log is of a recorded graph")
    graph = graphs.most_common(1)[0][0]
    of_graph = [launch for launch in launches if launch.graph == graph]
    begins = [i for i in range(len(of_graph)) if of_graph[i].name == of_graph[0].name]
    sizes = {later - begin for begin, later in zip(begins, begins[1:])}
    size = max(sizes) if sizes else len(of_graph)
    replays = [of_graph[i:i + size] for i in range(0, len(of_graph) - size + 1, size)]
    if any([l.name for l in r] != [l.name for l in replays[0]] for r in replays):
        sys.exit("show_launches: replays differ; the log is not of one graph at a time")
    return replays


def short_names(names):
    shown = dict(zip(names, names))
    if shutil.which("c++filt"):
        output = subprocess.run(["c++filt"], input="\n".join(names), text=True,
                                capture_output=True, check=True).stdout
        shown = dict(zip(names, output.splitlines()))
    return {name: re.sub(r"\(anonymous namespace\)::|atom::ops::|^void |\((?!.*>\().*$", "", text)
            for name, text in shown.items()}


def main():
    parser = argparse.ArgumentParser(prog="tools/show_launches.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", metavar="LOG")
    parser.add_argument("--first", type=int, default=0, metavar="N",
                        help="the launch of the step to begin with (default 0)")
    parser.add_argument("--count", type=int, default=1 << 30, metavar="N",
                        help="how many are shown (default all)")
    parser.add_argument("--sums", action="store_true",
                        help="of each kernel how often it is launched, and what that adds together")
    options = parser.parse_args()
    replays = replays_of(read(options.log))
    names = short_names(sorted({launch.name for launch in replays[0]}))

    def median(value):
        return statistics.median(value(replay) for replay in replays) / 1e3

    step = median(lambda replay: replay[-1].end - replay[0].begin)
    print(f"{len(replays)} replays of {len(replays[0])} launches, {step:.1f} us")
    sums = collections.defaultdict(list)
    for i, launch in enumerate(replays[0]):
        takes = median(lambda replay: replay[i].end - replay[i].begin)
        adds = median(lambda replay: replay[i].end - replay[i - 1].end) if i else takes
        early = median(lambda replay: replay[i - 1].end - replay[i].begin) if i else 0
        sums[names[launch.name]].append(adds)
        if not options.sums and options.first <= i < options.first + options.count:
            print(f"{i:5d} adds {adds:8.2f} takes {takes:8.2f} early {early:8.2f}"
                  f"  {launch.blocks} x {launch.threads}, {launch.registers} registers"
                  f"  {names[launch.name][:100]}")
    if options.sums:
        for name, values in sorted(sums.items(), key=lambda item: -sum(item[1])):
            each = sum(values) / len(values)
            print(f"{sum(values):9.1f} us in {len(values):4d}, {each:7.2f} each  {name[:110]}")


if __name__ == "__main__":
    main()
