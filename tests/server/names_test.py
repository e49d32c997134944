#!/usr/bin/env python3
"""Names of the original system and of vLLM, of options and variables: each is acted on, or taken with
a line of the log that says what happens instead, or refused by name.

usage: tests/server/names_test.py ATOM SOURCE_FOLDER [unittest arguments]
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from server_process import ServerProcess

ATOM = sys.argv[1]
MODEL = pathlib.Path(sys.argv[2]) / "models" / "tldr-8m"

WITHOUT_EFFECT = (
    ("--trust-remote-code",), ("--level", "2"), ("--attn-prefill-chunk-size", "16384"),
    ("--all2all-backend", "mori"), ("--moe-backend", "triton"), ("--attention-backend", "x"),
    ("--mark-trace",), ("--disable-uvicorn-access-log",), ("--enable-auto-tool-choice",),
    ("--disable-log-requests",), ("--swap-space", "4"), ("--compilation-config", "3"),
    ("--distributed-executor-backend", "mp"), ("--tokenizer-mode", "auto"))
REFUSED = (
    ("-dcp", "2"), ("--dcp-config", "{}"), ("--enable-tbo",), ("--kv-transfer-config", "{}"),
    ("--enable-rapidserve",), ("--disagg-mode", "x"), ("--dspark-config", "{}"),
    ("--hf-overrides", "{}"), ("--fake-eplb",), ("--request-log",),
    ("--scheduler-delay-factor", "1"), ("--spec-decode-acceptance-length", "2"),
    ("--spec-decode-acceptance-rate", "0.5"), ("--cudagraph-mode", "PIECEWISE"),
    ("--method", "dspark"), ("--load-format", "gguf"), ("--level", "4"))
LONG_NAMES = {"-dcp": "--decode-context-parallel-size"}
VARIABLES_WITHOUT_EFFECT = (
    "ATOM_USE_TRITON_MOE", "ATOM_USE_TRITON_MLA", "ATOM_USE_TRITON_ATTN", "VLLM_GDN_USE_BLADNN",
    "VLLM_QSA_PREFILL_USE_TL_INDEXER", "VLLM_QSA_DECODE_USE_TL_INDEXER",
    "VLLM_QSA_PREFILL_ATTN_BACKEND", "VLLM_QSA_DECODE_ATTN_BACKEND")
# What others say: acted on where this build can, and else named like those above.
VARIABLES = (
    "ATOM_LLAMA_ENABLE_AITER_TRITON_FUSED_RMSNORM_QUANT",
    "ATOM_LLAMA_ENABLE_AITER_TRITON_FUSED_SILU_MUL_QUANT",
    "ATOM_ENABLE_QK_NORM_ROPE_CACHE_QUANT_FUSION", "ATOM_ENABLE_DS_INPUT_RMSNORM_QUANT_FUSION",
    "ATOM_ENABLE_DS_QKNORM_QUANT_FUSION", "ATOM_ENABLE_DS_QKNORM_FUSION",
    "ATOM_ENABLE_ALLREDUCE_RMSNORM_FUSION", "ATOM_USE_TRITON_GEMM", "ATOM_USE_TRITON_MXFP4_BMM",
    "AITER_QUICK_REDUCE_QUANTIZATION", "VLLM_QSA_USE_FP8_INDEXER", "VLLM_QSA_PREFILL_USE_CP",
    "VLLM_DSA_USE_CONTEXT_PARALLEL_THRESHOLD", "VLLM_DSA_USE_DENSE_PREFILL_THRESHOLD",
    "ATOM_DP_RANK", "ATOM_DP_RANK_LOCAL", "ATOM_DP_SIZE", "ATOM_DP_MASTER_IP",
    "ATOM_DP_MASTER_PORT", "ATOM_ENFORCE_EAGER", "ATOM_DISABLE_MMAP", "HIP_VISIBLE_DEVICES")


def serve(*flags, env=None):
    return ServerProcess(ATOM, MODEL, "--max-model-len", 128, *flags, env=env)


def ask(server):
    return server.post("/v1/completions", {"prompt": "tar", "max_tokens": 2})[0]


class Names(unittest.TestCase):
    def test_options_without_effect_are_told_of(self):
        with serve(*(word for flags in WITHOUT_EFFECT for word in flags)) as server:
            for name, *_ in WITHOUT_EFFECT:
                self.assertIn(f"{name} has no effect: ", server.output())
            self.assertEqual(ask(server), 200)

    def test_options_that_would_change_what_is_served_are_refused(self):
        for flags in REFUSED:
            with self.subTest(flags):
                result = subprocess.run([ATOM, "serve", str(MODEL), *flags], capture_output=True,
                                        text=True, timeout=60, check=False)
                self.assertEqual(result.returncode, 2, result.stderr)
                name = LONG_NAMES.get(flags[0], flags[0])
                self.assertIn(name, result.stderr)
                self.assertNotIn("unknown option", result.stderr)

    def test_options_that_mean_flags_of_ours(self):
        with tempfile.TemporaryDirectory() as folder, \
                serve("--port", 1, "--server-port", 0, "--enforce_eager", "--timeout-keep-alive", 7,
                      "--torch-profiler-dir", folder, "--cudagraph-mode", "FULL",
                      "--kv_cache_dtype", "bf16", "--served_model_name", "a", "b",
                      "--long-prefill-token-threshold", 16) as server:
            self.assertIn("--server-port counts, not --port", server.output())
            self.assertIn("Perfetto's format", server.output())
            self.assertEqual(server.post("/start_profile", {})[0], 200)
            self.assertEqual(ask(server), 200)
            self.assertEqual(server.post("/stop_profile", {})[0], 200)
            self.assertEqual(len(list(pathlib.Path(folder).iterdir())), 1)
            names = [model["id"] for model in server.request("GET", "/v1/models")[2]["data"]]
            self.assertEqual(names, ["a", "b"])

    def test_a_template_may_be_given_as_it_is(self):
        with serve("--chat-template", "{{ messages[0].content }}!") as server:
            prompt = server.post("/v1/chat/completions/render", {
                "messages": [{"role": "user", "content": "tar"}]})[2]["prompt"]
            self.assertEqual(prompt, "tar!")

    def test_variables_without_effect_are_told_of(self):
        with serve(env=dict.fromkeys(VARIABLES_WITHOUT_EFFECT, "1")) as server:
            for name in VARIABLES_WITHOUT_EFFECT:
                self.assertIn(f"{name} has no effect: ", server.output())
            self.assertEqual(ask(server), 200)

    def test_variables_are_documented_or_told_of(self):
        documented = (pathlib.Path(sys.argv[2]) / "docs" / "environment.md").read_text()
        table = "\n".join(line for line in documented.splitlines() if line.startswith("|"))
        others = [name for name in VARIABLES if f"`{name}" not in table and not re.search(
            rf"`{name.rsplit('_', 1)[0]}_\*`", table)]
        with serve(env=dict.fromkeys(others, "1")) as server:
            for name in others:
                self.assertIn(f"{name} has no effect: ", server.output())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
