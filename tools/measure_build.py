#!/usr/bin/env python3
"""User CPU seconds that compiling a target takes, of several source trees side by side: every
compilation once, without ccache, the trees' in turns, so that other work on the machine slows all
of them alike. Linking is left out. Or packs what that needs, headers of libraries included, for a
machine that has a C++ compiler and nothing else.

usage: tools/measure_build.py BUILD [BUILD...] [--target atom] [--jobs N]
           each BUILD a folder that cmake has configured with Ninja, built or not
       tools/measure_build.py --pack FILE.tar.xz BUILD [BUILD...] [--target atom]
           BUILDs that have been built say which headers are read
       tools/measure_build.py --packed FOLDER [--jobs N]
           FOLDER: where the file was unpacked
Prints the seconds of each tree, and of all others over the first. Exit code 1: something did not
compile."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

SYSTEM_HEADERS = pathlib.Path("/usr/include")
# Of the compiler and of the C library, which every machine with a compiler has.
OWN_HEADERS = {"c++", "bits", "sys", "gnu", "asm", "asm-generic", "linux", "net", "netinet", "rpc",
               "arpa"}


def ninja(build, *arguments):
    return subprocess.run(["ninja", "-C", build, *arguments], check=True, capture_output=True,
                          text=True).stdout


def commands_of(build, target):
    """What compiles, without a cache in front and without writing anything."""
    commands = []
    for line in ninja(build, "-t", "commands", target).splitlines():
        words = shlex.split(line) if " -c " in line else []
        if "-c" not in words:
            continue
        for at, word in enumerate(words[:5]):
            if pathlib.Path(word).name == "ccache":  # what sets its environment stands before it
                words = words[at + 1:]
                break
        for option in ("-MF", "-MT", "-o"):
            at = words.index(option)
            del words[at:at + 2]
        commands.append([word for word in words if word != "-MD"])
    return commands


def generate(build, target):
    """Sources that the build makes, as CMake's scripts write them."""
    sources = {words[-1] for words in commands_of(build, target)}
    missing = [source for source in sources if not (pathlib.Path(build) / source).exists()]
    if missing:
        subprocess.run(["ninja", "-C", build, *missing], check=True, stdout=subprocess.DEVNULL)


def measure(command, folder):
    """User CPU seconds, or None and the end of what the compiler said."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([*command, "-o", "/dev/null"], cwd=folder, stdout=log,
                                   stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode == 0:
            return usage.ru_utime, ""
        log.seek(0)
        return None, log.read().decode(errors="replace")[-2000:]


def in_turns(trees):
    """(tree, command, folder) of all, spread evenly, so that each tree is done when the last is."""
    work = []
    for index, (commands, folder) in enumerate(trees):
        work += [((i + 0.5) / len(commands), index, command, folder)
                 for i, command in enumerate(commands)]
    return [item[1:] for item in sorted(work, key=lambda item: item[:2])]


def run(trees, jobs):
    """trees: name, commands and folder of each."""
    seconds, failed = [0.0] * len(trees), 0
    work = in_turns([(commands, folder) for _, commands, folder in trees])
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = pool.map(lambda item: measure(item[1], item[2]), work)
        for (index, command, _), (took, log) in zip(work, results):
            if took is None:
                failed += 1
                print(f"does not compile: {command[-1]}\n{log}" if failed <= 3 else
                      f"does not compile: {command[-1]}", file=sys.stderr, flush=True)
            else:
                seconds[index] += took
    for (name, commands, _), took in zip(trees, seconds):
        print(f"{name}: {took:.1f} s of user CPU time, {len(commands)} compilations, "
              f"{took / seconds[0]:.3f} of the first")
    return 1 if failed else 0


def library_headers(builds):
    """Files and folders below /usr/include that are neither the compiler's nor the C library's."""
    found = set()
    read = "".join(ninja(build, "-t", "deps") for build in builds)
    for path in set(re.findall(r"/usr/include/\S+", read)):
        parts = pathlib.Path(path).relative_to(SYSTEM_HEADERS).parts
        skipped = 1 if parts[0].endswith("-linux-gnu") else 0
        if parts[skipped] in OWN_HEADERS or len(parts) == 1 and not of_library(path):
            continue
        # Boost is large: of it the libraries that are read.
        depth = skipped + (2 if parts[skipped] == "boost" else 1)
        found.add("/".join(parts[:depth]))
    return sorted(found)


def of_library(path):
    """Of a file right below /usr/include, most of which are the C library's."""
    return not subprocess.run(["dpkg", "-S", path], capture_output=True,
                              text=True).stdout.startswith(("libc6-dev", "linux-libc-dev"))


def root_of(build):
    cache = (pathlib.Path(build) / "CMakeCache.txt").read_text()
    return pathlib.Path(re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache, re.M)[1])


def pack(file, builds, target):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for header in library_headers(builds):
            destination = scratch / "include" / re.sub(r"^[^/]*-linux-gnu/", "", header)
            destination.parent.mkdir(parents=True, exist_ok=True)
            source = SYSTEM_HEADERS / header
            if source.is_dir():
                shutil.copytree(source, destination, dirs_exist_ok=True)
            else:
                shutil.copy(source, destination)
        trees = []
        for index, build in enumerate(builds):
            generate(build, target)
            root, folder = root_of(build), scratch / str(index)
            shutil.copytree(root / "src", folder / "src")
            needed = root / ".cache/xgrammar/include"
            if needed.exists():
                shutil.copytree(needed, folder / ".cache/xgrammar/include")
            commands = commands_of(build, target)
            for source in (pathlib.Path(words[-1]) for words in commands):
                path = pathlib.Path(build).resolve() / source
                if not path.is_relative_to(root / "src"):
                    copy = folder / path.relative_to(root)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, copy)
            within = pathlib.Path(build).resolve().relative_to(root)
            (folder / within).mkdir(parents=True, exist_ok=True)
            trees.append({"name": root.name, "build": str(within), "commands": [
                [word.replace(str(root), "@ROOT@") for word in words] for words in commands]})
        (scratch / "trees.json").write_text(json.dumps(trees))
        subprocess.run(["tar", "-C", scratch, "-I", "xz -2", "-cf", file, "."], check=True)


def packed_trees(folder):
    folder = pathlib.Path(folder).resolve()
    include = ["-isystem", str(folder / "include")]
    trees = []
    for index, tree in enumerate(json.loads((folder / "trees.json").read_text())):
        root = folder / str(index)
        # Warnings are another compiler's, perhaps, and no errors here.
        commands = [["c++", "-w", *include] +
                    [word.replace("@ROOT@", str(root)) for word in words[1:] if word != "-Werror"]
                    for words in tree["commands"]]
        trees.append((tree["name"], commands, root / tree["build"]))
    return trees


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="*", metavar="BUILD")
    parser.add_argument("--target", default="atom")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--pack", metavar="FILE")
    parser.add_argument("--packed", metavar="FOLDER")
    options = parser.parse_args()
    if bool(options.packed) == bool(options.builds):
        parser.error("either BUILDs or --packed FOLDER")
    if options.pack:
        pack(os.path.abspath(options.pack), options.builds, options.target)
        return 0
    if options.packed:
        return run(packed_trees(options.packed), options.jobs)
    for build in options.builds:
        generate(build, options.target)
    return run([(str(root_of(build)), commands_of(build, options.target), build)
                for build in options.builds], options.jobs)


if __name__ == "__main__":
    sys.exit(main())
