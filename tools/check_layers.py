#!/usr/bin/env python3
"""Checks the structure of src/ against cmake/layers.txt and a few rules that go with it.

usage: tools/check_layers.py [ROOT]

Fails, naming file and line, on
- an #include of another folder that cmake/layers.txt does not allow;
- #if on a vendor or instruction set outside the files that are for one;
- a file built for an instruction set (_avx2.cc, _avx512.cc) that includes, directly or not, a C++
  standard header: the linker could merge its inline functions into code for every machine;
- an environment variable read outside base/env.cc (tests may);
- <nlohmann/json.hpp> in a header, which costs every includer a second of compile time;
- a header without #pragma once, or a source that no CMakeLists.txt names.
"""
import re
import sys
from pathlib import Path

LEVEL_LINE = re.compile(r"^(\d+)\s+(\w+):\s*(.*)$")
SIBLINGS_LINE = re.compile(r"^siblings\s+(\w+):\s*(.*)$")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
JSON_INCLUDE = re.compile(r"^\s*#\s*include\s+<nlohmann/json\.hpp>")
GETENV = re.compile(r"\b(?:secure_)?getenv\s*\(")
CONDITION = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b(.*)$")
VENDOR = re.compile(
    r"__x86_64|__i386|__aarch64|__arm|__ARM|__AVX|__SSE|__FMA|__AMX|__F16C|_M_X64|_M_ARM"
    r"|__CUDA|__HIP|__NVCC|\w*_(?:CUDA|HIP|ROCM|NCCL|AVX2|AVX512|AMX|NEON)\b")
SYSTEM_INCLUDE = re.compile(r"^\s*#\s*include\s+<([^>]+)>")
# _simd.h and _inl.h hold the body that the files for several instruction sets share.
ARCH_FILE = re.compile(
    r"_(?:avx2|avx512|amx|neon|cuda|hip|sm\d+|gfx\d+)\.\w+$|_(?:simd|inl)\.h$|\.cuh?$")
CPU_ARCH_SOURCE = re.compile(r"_(?:avx2|avx512|amx|neon)\.cc$")
PLAIN_HEADERS = {"immintrin.h", "float.h", "limits.h", "math.h", "stddef.h", "stdint.h",
                 "string.h", "cstddef", "cstdint"}
TEST_FILE = re.compile(r"_(?:test|bench|fuzz)\.(?:cc|h)$")
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}


class Layers:
    def __init__(self, path):
        self.level = {}
        self.allowed = {}
        self.siblings = {}
        for number, raw in enumerate(path.read_text().splitlines(), 1):
            line = raw.split("#")[0].strip()
            if not line:
                continue
            if match := LEVEL_LINE.match(line):
                folder = match[2]
                self.level[folder] = int(match[1])
                self.allowed[folder] = match[3].split()
            elif match := SIBLINGS_LINE.match(line):
                self.siblings[match[1]] = match[2].split()
            else:
                sys.exit(f"{path}:{number}: not a layer line: {raw}")
        for folder, entries in self.allowed.items():
            for entry in entries:
                lower = entry.split("/")[0]
                if lower not in self.level:
                    sys.exit(f"{path}: {folder} may include {lower}, which has no line")
                if self.level[lower] >= self.level[folder] and "/" not in entry:
                    sys.exit(f"{path}: {folder} may include {lower}, which is not lower")


def names(entry, include):
    """Whether a layers.txt entry (folder or header) covers an included path."""
    return include == entry or include.startswith(entry + "/")


def include_problem(layers, source, include):
    """Why `source` (relative to src/) may not include `include`, or None."""
    folder, target = source.parts[0], include.split("/")[0]
    if "/" not in include:
        return f'"{include}" is not written from src/ ("{source.parent}/{include}")'
    is_test = TEST_FILE.search(source.name) is not None
    if target == "tests":
        return None if is_test else "only tests may include tests/"
    if target not in layers.level:
        return f"folder {target} has no line in cmake/layers.txt"
    if target == folder:
        siblings = layers.siblings.get(folder)
        own_header = include == source.with_suffix(".h").as_posix()
        if siblings is None or is_test or own_header or source.name == "registry.cc":
            return None
        if any(names(entry, include) for entry in siblings):
            return None
        if any(names(entry, source.as_posix()) for entry in siblings):
            return f"a shared file of {folder} does not know {include}"
        return f"files of {folder} do not include each other, only {' '.join(siblings)}"
    if any(names(entry, include) for entry in layers.allowed[folder]):
        return None
    if is_test and layers.level[target] < layers.level[folder]:
        return None
    allowed = " ".join(layers.allowed[folder]) or "nothing of ours"
    return f"{folder} may not include {include}; it may include: {allowed}"


def may_name_vendor(source):
    if source.as_posix() in ("tensor/gpu_api.h", "base/cpu_info.cc"):
        return True
    if source.parts[:2] == ("ops", "device") or ARCH_FILE.search(source.name):
        return True
    # ops/<op>/<op>.cc holds the variant table, a row of which may be conditional.
    return source.parts[0] == "ops" and source.name == source.parent.name + ".cc"


def system_includes(root, path, seen):
    """Yields (file, line, header) for each <header> that `path` includes, directly or not."""
    if path in seen or not path.exists():
        return
    seen.add(path)
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := SYSTEM_INCLUDE.match(line):
            yield path, number, match[1]
        elif match := INCLUDE.match(line):
            yield from system_includes(root, root / "src" / match[1], seen)


def arch_problems(root, path):
    for file, number, header in system_includes(root, path, set()):
        if header not in PLAIN_HEADERS:
            line = number if file == path else 1
            through = "" if file == path else f" through {file.relative_to(root)}:{number}"
            yield line, f"a file for one instruction set includes <{header}>{through}"


def is_named_in_cmake(root, path):
    for folder in path.parents:
        lists = folder / "CMakeLists.txt"
        if lists.exists():
            name = re.escape(path.relative_to(folder).as_posix())
            if re.search(rf"(?<![\w/]){name}(?![\w.])", lists.read_text()):
                return True
        if folder == root:
            return False
    return False


def check_file(layers, root, path):
    source = path.relative_to(root / "src")
    if len(source.parts) < 2:
        return [(1, "sources live in a folder of src/")]
    if source.parts[0] not in layers.level:
        return [(1, f"folder {source.parts[0]} has no line in cmake/layers.txt")]
    text = path.read_text()
    is_header = path.suffix in (".h", ".cuh")
    is_test = TEST_FILE.search(source.name) is not None
    problems = []
    if is_header and "#pragma once" not in text:
        problems.append((1, "header without #pragma once"))
    if not is_header and not is_named_in_cmake(root, path):
        problems.append((1, "no CMakeLists.txt names this source"))
    if CPU_ARCH_SOURCE.search(source.name):
        problems += arch_problems(root, path)
    for number, line in enumerate(text.splitlines(), 1):
        if match := INCLUDE.match(line):
            if problem := include_problem(layers, source, match[1]):
                problems.append((number, problem))
        if is_header and not is_test and JSON_INCLUDE.match(line):
            problems.append((number, "headers use <nlohmann/json_fwd.hpp>"))
        if (match := CONDITION.match(line)) and VENDOR.search(match[1]):
            if not may_name_vendor(source):
                problems.append((number, "#if on a vendor or instruction set belongs in an "
                                         "arch-suffixed file or the operator's variant table"))
        if GETENV.search(line.split("//")[0]) and source.as_posix() != "base/env.cc":
            if not is_test:
                problems.append((number, "the environment is read in base/env.cc alone"))
    return problems


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    layers = Layers(root / "cmake" / "layers.txt")
    files = sorted(p for p in (root / "src").rglob("*") if p.suffix in SOURCE_SUFFIXES)
    if not files:
        sys.exit(f"check_layers: no source under {root}/src")
    failed = 0
    for path in files:
        for number, problem in check_file(layers, root, path):
            print(f"{path.relative_to(root)}:{number}: {problem}")
            failed += 1
    print(f"check_layers: {len(files)} files, {failed} problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
