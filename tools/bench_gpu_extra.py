"""The tables of bench_gpu.sh's sections that run only when they are named."""

import json

SHORT_BATCHES = ((1, 1024), (32, 1024), (256, 128))


def read_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def decode_steps(report):
    """(batch, input_len) -> ms of the fastest decode step; "prefill" -> ms of the longest prompt."""
    best = {}
    for result in (report or {}).get("results", ()):
        prefill = result["output_len"] == 1
        key = "prefill" if prefill else (result["batch_size"], result["input_len"])
        figure = "prefill_duration" if prefill else "decode_step"
        for sample in result["samples"]:
            best[key] = min(best.get(key, float("inf")), sample[figure] * 1e3)
    return best


def cells(values):
    return ["-" if value is None else f"{value:,.2f}" for value in values]


def table(header, rows):
    lines = ["", "| " + " | ".join(header) + " |", "| " + " | ".join(["---"] * len(header)) + " |"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] if rows else []


def short_rows(folder, runs):
    rows = []
    for name, label in runs:
        report = read_json(folder / f"{name}.json")
        if report:
            steps = decode_steps(report)
            rows.append([label] + cells([steps.get(key) for key in SHORT_BATCHES + ("prefill",)]))
    return rows


def fusion_lines(folder):
    rows = short_rows(folder, (
        ("fusions-bf16", "bf16"), ("fusions-bf16-no-qk", "bf16, rope and cache apart"),
        ("fusions-fp8", "FP8, cache FP8"), ("fusions-fp8-no-qk", "FP8, rope and cache apart"),
        ("fusions-fp8-no-norm", "FP8, norm and quantisation apart"),
        ("fusions-fp8-no-silu", "FP8, activation and quantisation apart")))
    return table(["fused kernels"] + short_header(), rows)


def short_header():
    return [f"B{batch}, {length} tokens, ms" for batch, length in SHORT_BATCHES] + [
        "prefill 8192, ms"]


def tuning_lines(folder):
    rows = short_rows(folder, (
        ("tuning", "bf16, tuned"), ("tuning-none", "bf16, the library's choice"),
        ("tuning-fp8", "FP8, tuned"), ("tuning-fp8-none", "FP8, the library's choice")))
    lines = table(["cuBLASLt"] + short_header(), rows)
    starts = []
    for suffix, label in (("", "bf16"), ("-fp8", "FP8")):
        seconds = [read_json(folder / f"tuning{suffix}-start-{name}.json")
                   for name in ("first", "again", "none")]
        if any(seconds):
            starts.append([label] + cells([entry and entry["seconds"] for entry in seconds]))
    return lines + table(["start to ready, s", "nothing remembered", "remembered", "not tuned"],
                         starts)


def deterministic_lines(folder):
    rows = []
    for suffix, label in (("", "bf16"), ("-fp8-kv", "FP8, cache FP8")):
        plain = decode_steps(read_json(folder / f"deterministic{suffix}.json"))
        fixed = decode_steps(read_json(folder / f"deterministic{suffix}-on.json"))
        for key in sorted(plain):
            if key != "prefill":
                ratio = f"{fixed[key] / plain[key]:.2f}" if key in fixed else "-"
                rows.append([f"{label}, B{key[0]}"] +
                            cells([plain[key], fixed.get(key)]) + [ratio])
    return table(["--deterministic", "without, ms", "with, ms", "ratio"], rows)


def load_lines(folder):
    rows = []
    for name, label in (("cached", "page cache"), ("cached-again", "page cache, again"),
                        ("disk", "disk")):
        start = read_json(folder / f"load-{name}.json")
        if start:
            log = (folder / f"load-{name}.txt").read_text(errors="replace")
            loaded = [line.split("loaded ", 1)[1] for line in log.splitlines() if "loaded " in line]
            rows.append([label, f"{start['seconds']:.2f}", loaded[0] if loaded else "-"])
    evict = folder / "load-evict.txt"
    if rows and evict.exists():
        rows.append(["that disk, one thread", "", evict.read_text().strip()])
    return table(["16 GB of weights from", "start to ready, s", "of it loading"], rows)


def serve_lines(folder):
    online = read_json(folder / "serve-256.json")
    offline = read_json(folder / "throughput.json")
    if not online:
        return []
    text = f"512 requests of 1024 + 1024 tokens over HTTP, 256 at a time: " \
           f"{online['output_throughput']:,.0f} tok/s"
    if offline:
        rate = offline["results"][0]["output_tokens_per_second"]
        text += f", {online['output_throughput'] / rate:.3f} of offline ({rate:,.0f})"
    return ["", text]


def extra_lines(folder):
    return (load_lines(folder) + fusion_lines(folder) + tuning_lines(folder) +
            deterministic_lines(folder) + serve_lines(folder))
