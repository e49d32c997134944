#!/usr/bin/env python3
"""Checks what tools/bench_gpu_table.py makes of a folder of measurements.

usage: tests/bench_gpu_table_test.py SOURCE_FOLDER [unittest arguments]
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(sys.argv[1]) / "tools" / "bench_gpu_table.py"
ROOFS = {"read_bandwidth": 4e12, "copy_bandwidth": 3e12, "bf16_flops": 8e14, "f32_flops": 5e13,
         "fp8_flops": 16e14}
# 16 GB of weights are 4 ms of reading.
DECODE_WORK = {"weight_bytes": 16e9, "kv_bytes": 0, "flops": 16e9, "fp8_flops": 0}
PREFILL_WORK = {"weight_bytes": 16e9, "kv_bytes": 0, "flops": 128e12, "fp8_flops": 64e12}


def result(batch, input_len, output_len, *seconds):
    figure = "decode_step" if output_len > 1 else "prefill_duration"
    return {"batch_size": batch, "input_len": input_len, "output_len": output_len,
            "decode_work": DECODE_WORK, "prefill_work": PREFILL_WORK,
            "samples": [{figure: value, "roofs": ROOFS, "device_idle_share": 0.01}
                        for value in seconds]}


def latency(*results):
    return {"machine": "a card", "roofs": [ROOFS], "results": results}


class Tables(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def write(self, **reports):
        for name, report in reports.items():
            text = report if isinstance(report, str) else json.dumps(report)
            suffix = "txt" if isinstance(report, str) else "json"
            (self.folder / f"{name.replace('_', '-')}.{suffix}").write_text(text)

    def lines(self):
        done = subprocess.run([sys.executable, str(TOOL), str(self.folder)], check=True,
                              capture_output=True, text=True)
        self.assertEqual((self.folder / "results.md").read_text(), done.stdout)
        return done.stdout.splitlines()

    def test_an_empty_folder_gives_dashes(self):
        lines = self.lines()
        self.assertIn("| bf16 |" + " - |" * 7, lines)
        self.assertEqual(sum(line.startswith("| ---") for line in lines), 1)
        results = json.loads((self.folder / "results.json").read_text())
        self.assertEqual(results["machine"], "no machine measured")

    def test_the_fastest_sample_counts_and_has_its_share_of_the_roof(self):
        self.write(decode=latency(result(1, 1024, 129, 0.006, 0.005), result(8, 1024, 129, 0.008),
                                  result(1, 8192, 1, 0.25, 0.2)),
                   decode_256=latency(result(256, 1024, 129, 0.016)),
                   throughput={"results": [{"output_tokens_per_second": 10000,
                                            "device_idle_share": 0.002}]})
        lines = self.lines()
        self.assertIn("| bf16 | 5.00 | 8.00 | - | - | 16.00 | 200.0 | 10,000 |", lines)
        # 4 of 5 ms; 64 T / 800 T/s + 64 T / 1600 T/s = 120 of 200 ms.
        self.assertIn("| % of the roof | 80 | 50 | - | - | 25 | 60 | - |", lines)
        self.assertIn("| % GPU waits for the engine | 1.0 | 1.0 | - | - | 1.0 | - | 0.2 |", lines)
        self.assertIn("a card: reads 4.00 TB/s, copies 3.00 TB/s, cuBLASLt 800 TFLOP/s bf16 and "
                      "1600 TFLOP/s FP8 (medians of the same runs).", lines)

    def test_serving_stands_beside_the_offline_run(self):
        self.write(start={"seconds": 0.7}, serve_first_token={"median_ttft_ms": 6.6},
                   serve_online={"output_throughput": 900.0},
                   serve_offline={"results": [{"output_tokens_per_second": 1000}]})
        lines = self.lines()
        self.assertIn("| start to ready | 0.70 s (vLLM: 74 s) |", lines)
        self.assertIn("| one stream over HTTP | - ms per token |", lines)
        self.assertIn("| 64 streams of 1024 + 128 over HTTP | 900 tok/s, 0.90 of offline |", lines)

    def test_named_sections_have_tables_of_their_own(self):
        short = latency(result(1, 1024, 65, 0.004), result(256, 128, 65, 0.010),
                        result(1, 8192, 1, 0.2))
        self.write(fusions_bf16=short, tuning=short, tuning_start_first={"seconds": 2.5},
                   deterministic=latency(result(1, 1024, 65, 0.004), result(32, 1024, 65, 0.006)),
                   deterministic_on=latency(result(1, 1024, 65, 0.005)),
                   deterministic_256=latency(result(256, 1024, 65, 0.016)),
                   deterministic_256_on=latency(result(256, 1024, 65, 0.018)))
        self.write(load_cached={"seconds": 3.0})
        self.write(load_cached="12:00 loaded 16 GB in 2.5 s\n", load_evict="5 GB/s\n")
        self.write(serve_256={"output_throughput": 9000.0},
                   throughput={"results": [{"output_tokens_per_second": 10000,
                                            "device_idle_share": 0}]})
        lines = self.lines()
        self.assertIn("| fused kernels | B1, 1024 tokens, ms | B32, 1024 tokens, ms | "
                      "B256, 128 tokens, ms | prefill 8192, ms |", lines)
        self.assertIn("| bf16 | 4.00 | - | 10.00 | 200.00 |", lines)
        self.assertIn("| bf16, tuned | 4.00 | - | 10.00 | 200.00 |", lines)
        self.assertIn("| bf16 | 2.50 | - | - |", lines)
        self.assertIn("| bf16, B1 | 4.00 | 5.00 | 1.25 |", lines)
        self.assertIn("| bf16, B32 | 6.00 | - | - |", lines)
        self.assertIn("| bf16, B256 | 16.00 | 18.00 | 1.12 |", lines)
        self.assertIn("| page cache | 3.00 | 16 GB in 2.5 s |", lines)
        self.assertIn("| that disk, one thread |  | 5 GB/s |", lines)
        self.assertIn("512 requests of 1024 + 1024 tokens over HTTP, 256 at a time: 9,000 tok/s, "
                      "0.900 of offline (10,000)", lines)

    def test_experts_that_tokens_choose_have_a_table(self):
        load = {"num_experts": 128, "chosen": 50.5, "chosen_if_evenly": 51.64,
                "tokens_per_chosen": 1.267, "largest": 4.25}
        self.write(experts_qwen3_30b_a3b={"steps": [
            {"name": "decode of 8, 1024 tokens each", "experts": load},
            {"name": "prefill of 1, 8192 tokens each", "experts": load}]})
        cell = " 50.5 (51.6) of 128, 1.3, 4.2 |"
        self.assertIn("| qwen3-30b-a3b | - |" + cell + " - |" * 3 + cell, self.lines())

    def test_failures_and_what_kernels_printed_are_kept(self):
        self.write(failures="decode-fp8\tmore than 60 s; no message\n")
        (self.folder / "linear_skinny_bench.txt").write_text("checked\nbf16 8 rows 91.0 %\n")
        lines = self.lines()
        self.assertIn("Failed: decode-fp8: more than 60 s; no message", lines)
        self.assertIn("bf16 8 rows 91.0 %", lines)
        self.assertNotIn("checked", lines)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
