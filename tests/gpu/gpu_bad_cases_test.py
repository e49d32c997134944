#!/usr/bin/env python3
"""What goes wrong with GPUs, and what the user reads: none there or hidden, memory taken by another
program, a model that does not fit, a fault in the middle of an answer.

usage: tests/gpu/gpu_bad_cases_test.py ATOM SOURCE_FOLDER [BINARIES] [unittest arguments]
"""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import time
import unittest

from gpu_machine import BINARIES, HAS_GPU, ROOT, ServerProcess, ATOM, atom, unittest_arguments

MODEL = ROOT / "models" / "tldr-8m"
SHAPES = {
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
           "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256},
    "70b": {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
            "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256},
}
ANSWER = "`tar`: Archiving utility."
SIZE = r"[0-9.]+ [GMKT]iB"


def ask_tar(*flags, env=None):
    return atom("generate", MODEL, "--chat", "tar", "--max-tokens", 8, *flags, env=env)


@contextlib.contextmanager
def shape(name):
    """A folder with the config.json of a Llama of that size."""
    with tempfile.TemporaryDirectory() as folder:
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": 128,
                  "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
                  "max_position_embeddings": 131072, "tie_word_embeddings": False,
                  "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": [2],
                  **SHAPES[name]}
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        yield folder


@contextlib.contextmanager
def memory_taken(gib_left):
    holder = subprocess.Popen([BINARIES / "hold_memory", str(gib_left)], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline(), "hold_memory got nothing"
        yield
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()


class CaseTest(unittest.TestCase):
    def expect(self, result, code, *patterns):
        self.assertEqual(result.returncode, code, result.stderr)
        for pattern in patterns:
            self.assertRegex(result.stderr, pattern)
        if code != 0:
            print(result.stderr.strip().splitlines()[-1])
        return result

    def does_not_fit(self, result):
        self.expect(result, 1, rf"the model does not fit: it needs {SIZE} \({SIZE} weights, {SIZE} "
                    rf"activations, {SIZE} KV cache for one sequence of \d+ tokens\), and {SIZE} "
                    rf"is allowed of the {SIZE} free \(the GPU has {SIZE}, and {SIZE} are taken\)",
                    "--max-model-len", "--quantization fp8", "--kv-cache-dtype fp8",
                    "--gpu-memory-utilization", "nvidia-smi", "--device cpu")


class NoGpu(CaseTest):
    @unittest.skipIf(HAS_GPU, "there is a GPU")
    def test_a_build_for_gpus_computes_on_the_cpu(self):
        result = self.expect(ask_tar(), 0)
        self.assertTrue(result.stdout.startswith(ANSWER), result.stdout)
        self.expect(ask_tar("--device", "cuda"), 1, "--device cuda: no NVIDIA driver was found",
                    "--device cpu computes without a GPU")

    @unittest.skipUnless(HAS_GPU, "no GPU")
    def test_a_hidden_gpu(self):
        hidden = {"CUDA_VISIBLE_DEVICES": ""}
        result = self.expect(ask_tar(env=hidden), 0)
        self.assertTrue(result.stdout.startswith(ANSWER), result.stdout)
        self.expect(ask_tar("--device", "cuda", env=hidden), 1,
                    "--device cuda: the NVIDIA driver shows no GPU: CUDA_VISIBLE_DEVICES hides it")


@unittest.skipUnless(HAS_GPU, "no GPU")
class Memory(CaseTest):
    def test_a_model_that_never_fits(self):
        with shape("70b") as folder:
            self.does_not_fit(atom("generate", folder, "--load-dummy", "random", "--device", "cuda",
                                   "--skip-tokenizer-init", "1,2,3"))

    def test_taken_by_another_program(self):
        with memory_taken(8), shape("8b") as folder:
            flags = (folder, "--load-dummy", "random", "--skip-tokenizer-init")
            self.does_not_fit(atom("generate", *flags, "1,2,3"))
            self.does_not_fit(atom("serve", *flags, "--port", 0))
            # The same program leaves enough for a small model.
            self.expect(ask_tar("--device", "cuda"), 0)

    def test_none_left(self):
        with memory_taken(0):
            self.expect(ask_tar("--device", "cuda"), 1, "memory|the model does not fit")


@unittest.skipUnless(HAS_GPU, "no GPU")
class Fault(CaseTest):
    """A kernel faults while an answer is streamed: its request ends with an error, the engine's
    process is started again, and the server serves on."""

    def ask(self, server):
        status, _, body = server.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "tar"}], "max_tokens": 8, "temperature": 0})
        self.assertEqual(status, 200, body)
        self.assertTrue(body["choices"][0]["message"]["content"].startswith(ANSWER))

    def wait_until_ready(self, server):
        deadline = time.monotonic() + 60
        while server.request("GET", "/readyz")[0] != 200:
            self.assertLess(time.monotonic(), deadline, "not ready again")
            time.sleep(0.02)

    def test_fault(self):
        with tempfile.TemporaryDirectory() as folder:
            trigger = pathlib.Path(folder) / "pid"
            env = {"LD_PRELOAD": str(BINARIES / "libgpu_fault.so"),
                   "ATOM_TEST_FAULT_FILE": str(trigger)}
            with ServerProcess(ATOM, MODEL, "--device", "cuda", "--max-model-len", 2048,
                               "--kv-cache-memory", "1GiB", env=env) as server:
                self.ask(server)
                for _ in range(3):
                    self.fault_once(server, trigger)
                print(re.search(r".*illegal memory access.*", server.output())[0])

    def fault_once(self, server, trigger):
        [engine] = server.engine_pids()
        answers = []

        def stream():
            answers.append(server.events("/v1/completions", {
                "prompt": "tar", "max_tokens": 2000, "ignore_eos": True, "temperature": 0}))
        threads = [threading.Thread(target=stream) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        pending = trigger.with_suffix(".new")
        pending.write_text(str(engine))
        begin = time.monotonic()
        os.rename(pending, trigger)  # whole at once
        for thread in threads:
            thread.join()
        noticed = time.monotonic() - begin
        for events in answers:
            error = events[-1]["error"]
            self.assertRegex(error["message"],
                             "the engine died.*and is being restarted; the request was lost")
        self.wait_until_ready(server)
        print(f"a fault was noticed after {noticed:.3f} s, ready again after "
              f"{time.monotonic() - begin:.2f} s; {answers[0][-1]['error']['message']}")
        self.assertIsNone(server.process.poll())
        self.assertNotEqual(server.engine_pids(), [engine])
        self.ask(server)


if __name__ == "__main__":
    unittest.main(argv=unittest_arguments())
