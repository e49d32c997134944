#!/usr/bin/env python3
"""Reads what tools/bench_gpu.sh measured in FOLDER; writes results.md and results.json there and
prints the former. What was not measured is shown as "-".
usage: tools/bench_gpu_table.py FOLDER"""

import json
import pathlib
import re
import sys

PRECISIONS = [("", "bf16"), ("-fp8", "FP8, cache bf16"), ("-fp8-kv", "FP8, cache FP8")]
BATCHES = [1, 8, 32, 64, 256]
PREFILL = 8192
# (batch, prompt) of the decodes in the sections that run only when they are named.
SHORT_SHAPES = [(1, 1024), (32, 1024), (256, 128)]
KERNEL_BENCHES = ["attention_gpu_bench", "linear_skinny_bench", "linear_stream_bench",
                  "linear_wgmma_bench", "norm_activation_bench", "rope_quant_bench",
                  "attention_flashinfer_bench"]

# vLLM 0.24.0 on one H200, same shape, dummy weights; FP8 with one scale per tensor and a bf16
# cache. ms per token by batch, ms of the prefill, tokens/s of the throughput, s to ready.
PEER = {
    "": {"decode": dict(zip(BATCHES, (4.82, 5.16, 6.30, 7.71, 18.26))), "prefill": 205,
         "throughput": 9745, "start": 74},
    "-fp8": {"decode": dict(zip(BATCHES, (3.46, 3.77, 5.35, 6.26, 16.20))), "prefill": 137,
             "throughput": 11692, "start": 60},
}
PEER["-fp8-kv"] = PEER["-fp8"]

# vLLM 0.33.0 on one H200, dummy weights of which routing spreads; what was unsteady, or measured
# with version 0.24, is left out.
MIXTURES = {
    "qwen3-30b-a3b": {"decode": dict(zip(BATCHES, (4.18, 9.08, 15.76, 18.75, 27.84))),
                      "prefill": 147.4, "throughput": 7903},
    "qwen3-30b-a3b-fp8": {},
    "gpt-oss-20b": {"decode": {1: 3.10, 256: 14.14}, "prefill": 128.7, "throughput": 12781},
    "gpt-oss-120b": {"decode": {1: 4.48, 256: 32.73}, "prefill": 214.5},
    "glm-4.5-air-fp8": {},
    "mixtral-8x7b": {},
    "qwen3-next-80b-fp8": {},
    "qwen3.5-35b-a3b": {},
    "deepseek-v3-6": {},
    "deepseek-v32-4": {},
    "glm-5-4": {},
    "kimi-k2-6": {},
}


def read_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def reports(folder, suffix):
    names = [f"decode{suffix}.json", f"decode{suffix}-256.json"]
    return [report for report in (read_json(folder / name) for name in names) if report]


def best_samples(measurements):
    """(batch, input_len, output_len) -> its fastest sample, with the work it is judged by."""
    best = {}
    for report in measurements:
        for result in report["results"]:
            key = (result["batch_size"], result["input_len"], result["output_len"])
            for sample in result["samples"]:
                entry = dict(sample, decode_work=result["decode_work"],
                             prefill_work=result["prefill_work"])
                figure = "decode_step" if key[2] > 1 else "prefill_duration"
                if not sample[figure]:  # no step that all requests share
                    continue
                if key not in best or sample[figure] < best[key][figure]:
                    best[key] = entry
    return best


def least_seconds(work, roofs):
    seconds = (work["weight_bytes"] + work["kv_bytes"]) / roofs["read_bandwidth"]
    if roofs["bf16_flops"]:
        fp8 = work["fp8_flops"] / (roofs["fp8_flops"] or roofs["bf16_flops"])
        seconds = max(seconds, (work["flops"] - work["fp8_flops"]) / roofs["bf16_flops"] + fp8)
    return seconds


def measured(folder, suffix):
    result = {"decode": {}, "decode_share": {}, "idle_share": {}}
    for (batch, length, output), sample in best_samples(reports(folder, suffix)).items():
        if length == PREFILL and output == 1:
            result["prefill"] = sample["prefill_duration"]
            result["prefill_share"] = least_seconds(
                sample["prefill_work"], sample["roofs"]) / sample["prefill_duration"]
        elif output > 1:
            result["decode"][batch] = sample["decode_step"]
            result["decode_share"][batch] = least_seconds(
                sample["decode_work"], sample["roofs"]) / sample["decode_step"]
            result["idle_share"][batch] = sample["device_idle_share"]
    throughput = read_json(folder / f"throughput{suffix}.json")
    if throughput:
        only, = throughput["results"]
        result["throughput"] = only["output_tokens_per_second"]
        result["throughput_idle_share"] = only["device_idle_share"]
    return result


def roofs_of(folder):
    suffixes = [suffix for suffix, _ in PRECISIONS] + [f"-{name}" for name in MIXTURES]
    samples = [roofs for suffix in suffixes for report in reports(folder, suffix)
               for roofs in report["roofs"]]
    names = samples[0].keys() if samples else ()
    return {name: sorted(entry[name] for entry in samples)[len(samples) // 2] for name in names}


def serving(folder):
    result = {}
    start = read_json(folder / "start.json")
    if start:
        result["start"] = start["seconds"]
    first = read_json(folder / "serve-first-token.json")
    if first:
        result["first_token_ms"] = first["median_ttft_ms"]
    online = read_json(folder / "serve-online.json")
    offline = read_json(folder / "serve-offline.json")
    if online:
        result["online"] = online["output_throughput"]
    if online and offline:
        result["offline"] = offline["results"][0]["output_tokens_per_second"]
        result["online_over_offline"] = result["online"] / result["offline"]
    single = read_json(folder / "serve-online-1.json")
    if single:
        result["online_tpot_ms"] = single["median_tpot_ms"]
    return result


def kernel_lines(folder):
    lines = []
    for name in KERNEL_BENCHES:
        path = folder / f"{name}.txt"
        text = path.read_text(errors="replace") if path.exists() else ""
        lines += [line for line in text.splitlines() if re.search(r"%|TFLOP/s|TB/s|FAIL", line)]
    return lines


def cell(value, scale=1.0, digits=2):
    return "-" if value is None else f"{value * scale:,.{digits}f}"


def table(header, rows):
    lines = ["", "| " + " | ".join(header) + " |", "| " + " | ".join(["---"] * len(header)) + " |"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] if rows else []


def rows_of(result, label, peer, peer_name):
    decode, share = result["decode"], result["decode_share"]
    ours = [cell(decode.get(batch), 1e3) for batch in BATCHES]
    ours += [cell(result.get("prefill"), 1e3, 1), cell(result.get("throughput"), 1, 0)]
    bars = [cell(peer.get("decode", {}).get(batch)) for batch in BATCHES]
    bars += [cell(peer.get("prefill"), 1, 0), cell(peer.get("throughput"), 1, 0)]
    shares = [cell(share.get(batch), 100, 0) for batch in BATCHES]
    shares += [cell(result.get("prefill_share"), 100, 0), "-"]
    idle = [cell(result["idle_share"].get(batch), 100, 1) for batch in BATCHES]
    idle += ["-", cell(result.get("throughput_idle_share"), 100, 1)]
    return [[label] + ours, [peer_name] + bars,
            ["% of the roof"] + shares, ["% GPU waits for the engine"] + idle]


def serving_lines(serve):
    if not serve:
        return []
    return table(["serving, bf16", ""], [
        ["start to ready", f"{cell(serve.get('start'))} s (vLLM: 74 s)"],
        ["first token of 32 tokens", f"{cell(serve.get('first_token_ms'))} ms"],
        ["one stream over HTTP", f"{cell(serve.get('online_tpot_ms'))} ms per token"],
        ["64 streams of 1024 + 128 over HTTP",
         f"{cell(serve.get('online'), 1, 0)} tok/s, "
         f"{cell(serve.get('online_over_offline'))} of offline"]])


SHORT_HEADER = [f"B{batch}, {length} tokens, ms" for batch, length in SHORT_SHAPES] + [
    f"prefill {PREFILL}, ms"]


def short_times(folder, name):
    """Seconds of decode steps by (batch, input_len), and of the prefill."""
    report = read_json(folder / f"{name}.json")
    decode, prefill = {}, None
    for (batch, length, output), sample in best_samples([report] if report else []).items():
        if output > 1:
            decode[batch, length] = sample["decode_step"]
        elif length == PREFILL:
            prefill = sample["prefill_duration"]
    return decode, prefill


def short_rows(folder, runs):
    rows = []
    for name, label in runs:
        decode, prefill = short_times(folder, name)
        if decode:
            rows.append([label] + [cell(decode.get(shape), 1e3) for shape in SHORT_SHAPES] +
                        [cell(prefill, 1e3)])
    return rows


def fusion_lines(folder):
    rows = short_rows(folder, (
        ("fusions-bf16", "bf16"), ("fusions-bf16-no-qk", "bf16, rope and cache apart"),
        ("fusions-fp8", "FP8, cache FP8"), ("fusions-fp8-no-qk", "FP8, rope and cache apart"),
        ("fusions-fp8-no-norm", "FP8, norm and quantization apart"),
        ("fusions-fp8-no-silu", "FP8, activation and quantization apart"),
        ("fusions-latent", "DeepSeek-V3, 6 layers"),
        ("fusions-latent-no-input", "input norm and quantization apart"),
        ("fusions-latent-no-latents", "projections to latents and quantization apart"),
        ("fusions-latent-no-qk", "latent norm, rope and cache apart"),
        ("fusions-latent-no-expansion", "prompts over latents")))
    return table(["fused kernels"] + SHORT_HEADER, rows)


def tuning_lines(folder):
    rows = short_rows(folder, (
        ("tuning", "bf16, tuned"), ("tuning-none", "bf16, the library's choice"),
        ("tuning-fp8", "FP8, tuned"), ("tuning-fp8-none", "FP8, the library's choice")))
    lines = table(["cuBLASLt"] + SHORT_HEADER, rows)
    starts = []
    for suffix, label in (("", "bf16"), ("-fp8", "FP8")):
        seconds = [read_json(folder / f"tuning{suffix}-start-{name}.json")
                   for name in ("first", "again", "none")]
        if any(seconds):
            starts.append([label] + [cell(entry and entry["seconds"]) for entry in seconds])
    return lines + table(["start to ready, s", "nothing remembered", "remembered", "not tuned"],
                         starts)


def deterministic_lines(folder):
    rows = []
    for suffix, label in (("", "bf16"), ("-fp8-kv", "FP8, cache FP8")):
        plain, fixed = (
            {**short_times(folder, f"deterministic{suffix}{mode}")[0],
             **short_times(folder, f"deterministic-256{suffix}{mode}")[0]} for mode in ("", "-on"))
        for shape in sorted(plain):
            ours = fixed.get(shape)
            rows.append([f"{label}, B{shape[0]}", cell(plain[shape], 1e3), cell(ours, 1e3),
                         cell(ours and ours / plain[shape])])
    return table(["--deterministic", "without, ms", "with, ms", "ratio"], rows)


def loads_of(folder, run):
    rows = []
    for name, label in (("cached", "page cache"), ("cached-again", "page cache, again"),
                        ("disk", "disk")):
        start = read_json(folder / f"{run}-{name}.json")
        if start:
            log = (folder / f"{run}-{name}.txt").read_text(errors="replace")
            loaded = [line.split("loaded ", 1)[1] for line in log.splitlines() if "loaded " in line]
            rows.append([label, f"{start['seconds']:.2f}", loaded[0] if loaded else "-"])
    evict = folder / f"{run}-evict.txt"
    if rows and evict.exists():
        rows.append(["that disk, one thread", "", evict.read_text().strip()])
    return rows


def load_lines(folder):
    header = ["start to ready, s", "of it loading"]
    lines = table(["16 GB of weights from"] + header, loads_of(folder, "load"))
    for name in MIXTURES:
        lines += table([f"{name} from"] + header, loads_of(folder, f"load-{name}"))
    return lines


def expert_lines(folder):
    """Experts of a layer that tokens choose, by all shapes that were measured."""
    rows = []
    for name in MIXTURES:
        report = read_json(folder / f"experts-{name}.json")
        loads = {}
        for step in report["steps"] if report else []:
            kind, batch = re.match(r"(decode|prefill) of (\d+)", step["name"]).groups()
            loads[kind, int(batch)] = step["experts"]
        if loads:
            columns = [("decode", batch) for batch in BATCHES] + [("prefill", 1)]
            rows.append([name] + [load_cell(loads.get(column)) for column in columns])
    return table(["experts chosen in a layer (if evenly), tokens of each, of the largest"] +
                 [f"B{batch}" for batch in BATCHES] + [f"prefill {PREFILL}"], rows)


def load_cell(load):
    if load is None:
        return "-"
    return (f"{load['chosen']:.1f} ({load['chosen_if_evenly']:.1f}) of {load['num_experts']}, "
            f"{load['tokens_per_chosen']:.1f}, {load['largest']:.1f}")


def serve_256_lines(folder):
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


def markdown(folder, results):
    header = ["Llama-3.1-8B shape"] + [f"B{batch}, ms" for batch in BATCHES]
    header += [f"prefill {PREFILL}, ms", "1k/1k x256, tok/s"]
    lines = table(header, [row for suffix, label in PRECISIONS
                           for row in rows_of(results["precisions"][label], label, PEER[suffix],
                                              "vLLM 0.24.0, another H200")])[1:]
    header[0] = "mixture of experts"
    lines += table(header, [row for name, result in results["mixtures"].items()
                            for row in rows_of(result, name, MIXTURES[name],
                                               "vLLM 0.33.0, another H200")])
    lines += expert_lines(folder)
    roofs = results["roofs"]
    if roofs:
        lines += ["", f"{results['machine']}: reads {roofs['read_bandwidth'] / 1e12:.2f} TB/s, "
                  f"copies {roofs['copy_bandwidth'] / 1e12:.2f} TB/s, cuBLASLt "
                  f"{roofs['bf16_flops'] / 1e12:.0f} TFLOP/s bf16 and "
                  f"{roofs['fp8_flops'] / 1e12:.0f} TFLOP/s FP8 (medians of the same runs)."]
    lines += serving_lines(results["serving"])
    for name in ["breakdown", "breakdown-fp8-kv"] + [f"breakdown-{name}" for name in MIXTURES]:
        path = folder / f"{name}.txt"
        if path.exists() and read_json(folder / f"{name}.json"):
            lines += ["", "```text", path.read_text(errors="replace").rstrip(), "```"]
    kernels = kernel_lines(folder)
    if kernels:
        lines += ["", "```text"] + kernels + ["```"]
    for section in (load_lines, fusion_lines, tuning_lines, deterministic_lines, serve_256_lines):
        lines += section(folder)
    for name, reason in results["failures"]:
        lines += ["", f"Failed: {name}: {reason}"]
    return "\n".join(lines) + "\n"


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    suffixes = [suffix for suffix, _ in PRECISIONS] + [f"-{name}" for name in MIXTURES]
    machines = [report["machine"] for suffix in suffixes for report in reports(folder, suffix)]
    mixtures = {name: measured(folder, f"-{name}") for name in MIXTURES}
    failures = folder / "failures.txt"
    results = {
        "machine": machines[0] if machines else "no machine measured",
        "roofs": roofs_of(folder),
        "precisions": {label: measured(folder, suffix) for suffix, label in PRECISIONS},
        "mixtures": {name: result for name, result in mixtures.items()
                     if result["decode"] or "prefill" in result or "throughput" in result},
        "serving": serving(folder),
        "failures": [line.split("\t", 1) for line in failures.read_text().splitlines()]
        if failures.exists() else [],
    }
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    text = markdown(folder, results)
    (folder / "results.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
