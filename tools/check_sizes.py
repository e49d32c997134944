#!/usr/bin/env python3
"""Reports the sizes of files and functions under src/, tests/, bench/ and examples/ and fails over the hard limits.

usage: tools/check_sizes.py [ROOT]

            soft (printed)   hard (fails)
file        400 lines        800 lines
header      150 lines        -
function     60 lines        120 lines      lambdas and macros count inside their function
line          -              100 columns
"""
import re
import sys
from pathlib import Path

FILE_SOFT, FILE_HARD, HEADER_SOFT = 400, 800, 150
FUNCTION_SOFT, FUNCTION_HARD = 60, 120
LINE_HARD = 100
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}

# One alternative per kind of text in which a brace is not a brace.
OPAQUE = re.compile(
    r'R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"'  # raw string
    r'|"(?:\\.|[^"\\\n])*"'                        # string
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"        # character, but no digit separator
    r"|//[^\n]*"
    r"|/\*.*?\*/"
    r"|^[ \t]*#(?:\\\n|[^\n])*",                   # preprocessor line with its continuations
    re.DOTALL | re.MULTILINE)
# The words that may stand between a function's parameters and its body.
AFTER_PARAMETERS = re.compile(r"\b(?:const|noexcept|override|final|mutable|try|volatile)$")
CONTAINER = re.compile(r"\b(?:namespace|class|struct|union|enum|extern)\b")


def blank(match):
    """Keeps lines, removes what they say."""
    return re.sub(r"[^\n]", " ", match[0])


def closing_brace(text, start):
    depth = 0
    for position in range(start, len(text)):
        if text[position] == "{":
            depth += 1
        elif text[position] == "}":
            depth -= 1
            if depth == 0:
                return position
    return len(text) - 1


def without_templates(head):
    """`head` without a leading template<...>, whose parameters may say `class`."""
    while match := re.match(r"\s*template\s*<", head):
        depth, position = 1, match.end()
        while position < len(head) and depth:
            depth += {"<": 1, ">": -1}.get(head[position], 0)
            position += 1
        head = head[position:]
    return head


def is_container(head):
    """Whether the text before a brace opens a namespace, class or enum, not a function."""
    head = without_templates(head)
    if not CONTAINER.search(head):
        return False
    # `struct Tensor make(...) {` is a function; `class alignas(64) Pool {` is not.
    return "(" not in re.sub(r"\b(?:alignas|__attribute__)\s*\(+[^()]*\)+", "", head)


def is_function(head):
    """Whether the brace after `head`, which opens no container, opens a function body."""
    head = re.sub(r"\balignas\s*\([^()]*\)", "", head.rstrip())
    is_variable = "(" not in head or re.search(r"(?<![=!<>])=(?!=)\s*(?:\[|$)", head)
    # `Pool(int n) : size_` before `{n}`
    in_member_initializers = (re.search(r"\)\s*(?:noexcept\s*)?:[^:]", head) and
                              re.search(r"[\w>]$", head) and not AFTER_PARAMETERS.search(head))
    return not is_variable and not in_member_initializers


def function_name(head):
    head = without_templates(head)
    match = re.search(r"(operator\s*[^\s(]+|~?[\w:~]+(?:<[^()]*>)?)\s*\(([^(),]*)(?:,\s*([^(),]*))?", head)
    if not match:
        return "?"
    if match[1] in ("TEST", "TEST_F", "TEST_P") and match[3]:
        return f"{match[2].strip()}.{match[3].strip()}"
    return match[1]


def functions(text):
    """Yields (name, first line, number of lines) of each function body in C++ source."""
    text = OPAQUE.sub(blank, text)
    head_start, position = 0, 0
    while position < len(text):
        character = text[position]
        if character in ";}":
            head_start = position + 1
        elif character == ":" and re.search(r"\b(?:public|private|protected)\s*$",
                                            text[head_start:position]):
            head_start = position + 1
        elif character == "(":
            # Braces of a default argument open nothing.
            depth = 1
            while depth and position + 1 < len(text):
                position += 1
                depth += {"(": 1, ")": -1}.get(text[position], 0)
        elif character == "{":
            head = text[head_start:position]
            if is_container(head):
                head_start = position + 1
            else:
                end = closing_brace(text, position)
                if is_function(head):
                    first = head_start + len(head) - len(head.lstrip())
                    line = text.count("\n", 0, first) + 1
                    yield function_name(head), line, text.count("\n", first, end) + 1
                    head_start = end + 1
                position = end
        position += 1


def quantiles(label, values):
    values = sorted(values)
    if not values:
        return f"{label}: none"
    at = lambda q: values[min(len(values) - 1, int(q * len(values)))]
    return (f"{label}: {len(values)}, lines median {at(0.5)}, p90 {at(0.9)}, max {values[-1]}, "
            f"sum {sum(values)}")


def check_file(path, shown):
    """Returns (number of lines, function sizes, warnings, errors) of one source file."""
    text = path.read_text()
    lines = text.splitlines()
    warnings, errors, sizes = [], [], []
    is_header = path.suffix in (".h", ".cuh")
    if len(lines) > FILE_HARD:
        errors.append(f"{shown}:1: {len(lines)} lines, at most {FILE_HARD} allowed")
    elif len(lines) > (HEADER_SOFT if is_header else FILE_SOFT):
        warnings.append(f"{shown}:1: {len(lines)} lines")
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_HARD:
            errors.append(f"{shown}:{number}: {len(line)} columns, at most {LINE_HARD} allowed")
    for name, line, size in functions(text):
        sizes.append(size)
        if size > FUNCTION_HARD:
            errors.append(f"{shown}:{line}: {name} has {size} lines, "
                          f"at most {FUNCTION_HARD} allowed")
        elif size > FUNCTION_SOFT:
            warnings.append(f"{shown}:{line}: {name} has {size} lines")
    return len(lines), sizes, warnings, errors


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    files = sorted(p for folder in ("src", "tests", "bench", "examples") if (root / folder).exists()
                   for p in (root / folder).rglob("*") if p.suffix in SOURCE_SUFFIXES)
    if not files:
        sys.exit(f"check_sizes: no source under {root}")
    file_sizes, function_sizes, warnings, errors = [], [], [], []
    for path in files:
        num_lines, sizes, file_warnings, file_errors = check_file(path, path.relative_to(root))
        file_sizes.append(num_lines)
        function_sizes += sizes
        warnings += file_warnings
        errors += file_errors
    for warning in warnings:
        print(f"{warning} (over the soft limit)")
    for error in errors:
        print(error)
    print(quantiles("files", file_sizes))
    print(quantiles("functions", function_sizes))
    print(f"check_sizes: {len(errors)} over a hard limit, {len(warnings)} over a soft one")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
