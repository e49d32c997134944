#!/usr/bin/env python3
"""Draws the tables of docs/performance.md on the CPU and on the GPU (which tools/bench_gpu.sh writes)
as docs/performance.svg: how much of what the machine could do atom reaches, and others beside it.

usage: tools/performance_chart.py [--check] [ROOT]

With --check the file is compared, not written; fails when the tables say something else.
"""
import pathlib
import re
import sys

WIDTH, ROW, BAR, LEFT, RIGHT = 720, 15, 11, 190, 60
TITLE, GAP, TOP = 30, 8, 46
STYLE = """
    text { font: 13px system-ui, sans-serif; fill: #1c1c1a; }
    .small { font-size: 11px; fill: #6b6b66; }
    .title { font-weight: 600; }
    .ours { fill: #2a6fd0; } .other { fill: #b9bec8; } .rule { stroke: #e3e3de; }
    @media (prefers-color-scheme: dark) {
      text { fill: #ececea; } .small { fill: #9d9d97; }
      .ours { fill: #6aa5f5; } .other { fill: #5b606b; } .rule { stroke: #35353a; }
    }
"""


def tables(text):
    """The Markdown tables of a text: each a list of rows of cells, the header first."""
    found, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            found.append([rows[0], *rows[2:]])
            rows = []
    return found


def number(text):
    return float(text.replace(",", ""))


def least(text):
    """The lower end of "0.91 to 0.99 of the bound", in percent."""
    return 100 * float(re.match(r"[\d.]+", text)[0])


def cpu_panel(table):
    rows = [(row[0], least(row[1]), least(row[-1])) for row in table[1:]]
    return "CPU, bfloat16: Qwen3-1.7B shape, 2 cores", "llama.cpp", rows


def gpu_panel(title, header, ours, share, theirs):
    """Shares of the roof: ours as measured, theirs by the ratio of the times."""
    rows = []
    for name, mine, percent, other in list(zip(header, ours, share, theirs))[1:]:
        if percent:
            batch = re.match(r"B(\d+)", name)
            label = f"decode, batch {batch[1]}" if batch else name.split(",")[0]
            rows.append((label, number(percent), number(percent) * number(mine) / number(other)))
    return title, "vLLM 0.24.0", rows


def panels(text):
    found = tables(text)
    cpu = next(table for table in found if table[0][-1].startswith("llama.cpp"))
    gpu = next(table for table in found if table[0][0] == "Llama-3.1-8B shape")
    result = [cpu_panel(cpu)]
    for ours, share, theirs in zip(gpu[1:], gpu[2:], gpu[3:]):
        if share[0] != "% of the roof" or not theirs[0].startswith("vLLM"):
            continue
        title = f"H200, {ours[0].replace('bf16', 'bfloat16')}: Llama-3.1-8B shape"
        result.append(gpu_panel(title, gpu[0], ours, share, theirs))
    return result


def bar(x, y, width, kind, label):
    return (f'  <rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR}"/>\n'
            f'  <text class="small" x="{x + width + 4:.1f}" y="{y + 9:.1f}">{label}</text>\n')


def draw(found):
    scale = (WIDTH - LEFT - RIGHT) / 100
    body, y = "", TOP
    for title, other, rows in found:
        body += f'  <text class="title" x="8" y="{y + 14}">{title}</text>\n'
        y += TITLE
        for name, ours, theirs in rows:
            body += f'  <text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{name}</text>\n'
            body += bar(LEFT, y, ours * scale, "ours", f"{ours:.0f}")
            body += bar(LEFT, y + BAR + 1, theirs * scale, "other", f"{theirs:.0f} {other}")
            y += 2 * ROW + GAP
        y += GAP
    rules = "".join(f'  <line class="rule" x1="{LEFT + part * scale:.1f}" '
                    f'x2="{LEFT + part * scale:.1f}" y1="{TOP}" y2="{y}"/>\n'
                    for part in (0, 25, 50, 75, 100))
    head = ('  <text class="title" x="8" y="20">Percent of what the machine could do</text>\n'
            f'  <text class="small" x="8" y="36">Blue: atom; gray: the engine named, on another '
            'such machine. 100: bandwidth or arithmetic as measured in the same run.</text>\n')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 8}" '
            f'width="{WIDTH}" height="{y + 8}" role="img">\n  <style>{STYLE}  </style>\n'
            f"{rules}{head}{body}</svg>\n")


def main():
    arguments = sys.argv[1:]
    if "-h" in arguments or "--help" in arguments:
        print(__doc__.strip())
        return
    checks = "--check" in arguments
    root = pathlib.Path(next((a for a in arguments if a != "--check"),
                             pathlib.Path(__file__).parent.parent))
    drawn = draw(panels((root / "docs" / "performance.md").read_text()))
    file = root / "docs" / "performance.svg"
    if not checks:
        file.write_text(drawn)
    elif not file.exists() or file.read_text() != drawn:
        sys.exit(f"{file} is not what the tables say; tools/performance_chart.py draws it again")


if __name__ == "__main__":
    main()
