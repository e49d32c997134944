#!/usr/bin/env python3
"""Golden cases over HTTP on several ranks and copies: threads of an engine process, several of
these, and two nodes. Held to the bounds of one rank, with drafts and cached prefixes.

usage: tests/server/golden_ranks_test.py ATOM SOURCE_FOLDER WRITE_CHECKPOINT [unittest arguments]

Every way of having ranks is tried with some case, or with ATOM_TEST_RANKS=all with every case, some
minutes. With ATOM_TEST_DEVICE=cuda ranks have a GPU each, in ways that need no more than there are.
"""
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

import golden_models_test as golden
import server_process
from server_process import ServerProcess

ALL = os.environ.get("ATOM_TEST_RANKS") == "all"
DEVICE = os.environ.get("ATOM_TEST_DEVICE", "cpu")
SPREAD = "--enable-expert-parallel"
# Flags by name; of those with experts in their names only models that have some are of interest.
WAYS = {
    "tp2": ["-tp", 2],
    "tp4": ["-tp", 4],
    "pp2": ["-pp", 2],
    "pp2_tp2": ["-pp", 2, "-tp", 2],
    "dp2": ["-dp", 2],
    "tp2_dp2": ["-tp", 2, "-dp", 2],
    "pcp2": ["-pcp", 2],
    "tp2_experts": ["-tp", 2, SPREAD],
    "dp2_experts": ["-dp", 2, SPREAD, "--expert-dispatch", "all-to-all"],
    "tp2_dp2_experts": ["-tp", 2, "-dp", 2, SPREAD],
    "attention_experts_in_parts": ["-tp", 2, "--enable-dp-attention"],
    "attention_experts": ["-tp", 4, "--enable-dp-attention", SPREAD],
    "moving_experts": ["-dp", 2, SPREAD, "--enable-eplb", "--eplb-config",
                       '{"rebalance_interval": 5, "num_redundant_experts": 2}'],
    "nodes": ["-tp", 2, "--nnodes", 2],
    "nodes_pp2_tp2": ["-pp", 2, "-tp", 2, "--nnodes", 2],
    "nodes_dp2": ["-dp", 2, "--nnodes", 2],
    "nodes_dp2_experts": ["-dp", 2, SPREAD, "--nnodes", 2],
    "nodes_tp2_dp2_experts": ["-tp", 2, "-dp", 2, SPREAD, "--nnodes", 2],
    "nodes_attention_experts": ["-tp", 2, "--enable-dp-attention", SPREAD, "--nnodes", 2],
}
# Why a model cannot be split in some way.
REFUSALS = "cannot share evenly|layers of recurrent states|that share a scale"
server_process.START_TIMEOUT = 120


def has_experts(case):
    config = json.loads((case / "config.json").read_text())
    return any(config.get(key) or config.get("text_config", {}).get(key)
               for key in ("num_experts", "num_local_experts", "n_routed_experts"))


def drafts(case):
    """Every case drafts: by the checkpoint's own layers, or what repeats."""
    config = json.loads((case / "config.json").read_text())
    method = "mtp" if config.get("num_nextn_predict_layers") else "ngram"
    return ["--method", method, "--num-speculative-tokens", 2,
            "--speculative-disable-by-batch-size", 64]


def num_ranks(flags):
    """Of all copies together."""
    count = 1
    for name, value in zip(flags, flags[1:]):
        if name in ("-tp", "-pp", "-dp", "-pcp"):
            count *= value
    return count


def num_cards():
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    return len(listed.stdout.splitlines())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class GoldenRanks(golden.GoldenChecks):
    def serve(self, folder, flags):
        """The server; None where the model cannot be split so, which says why."""
        try:
            return ServerProcess(golden.ATOM, folder, *flags)
        except RuntimeError as error:
            self.assertRegex(str(error), REFUSALS)
            return None

    def check_cached(self, server, prompts):
        for prompt in prompts:
            request = {key: value for key, value in prompt.request().items()
                       if not key.endswith("logprobs")}
            status, _, body = server.post("/v1/completions", request)
            self.assertEqual(status, 200, body)
            self.check_answer(prompt, body)
        metrics = server.request("GET", "/metrics")[2]
        hits = re.search(r"^vllm:prefix_cache_hits_total\S* (\S+)", metrics, re.MULTILINE)
        self.assertGreater(float(hits[1]), 0)

    def check_server(self, server, prompts):
        self.check_all(server, prompts)
        self.check_cached(server, prompts)

    def check(self, case, flags):
        flags = [*golden.FLAGS, *drafts(case), "--device", DEVICE,
                 "--state-checkpoint-interval-tokens", 16, *flags]
        with golden.written(case) as folder:
            if "--nnodes" in flags:
                return self.check_nodes(folder, flags, golden.prompts_of(case))
            server = self.serve(folder, flags)
            if server is None:
                return None
            with server:
                self.check_server(server, golden.prompts_of(case))
        return None

    def check_nodes(self, folder, flags, prompts):
        secret = pathlib.Path(folder) / "secret"
        secret.write_text("sixteen bytes or more")
        flags = [*flags, "--master-port", free_port(), "--node-secret-file", secret]
        with tempfile.TemporaryFile() as log:
            worker = subprocess.Popen(
                [golden.ATOM, "serve", folder, *map(str, flags), "--node-rank", "1",
                 "--first-card", str(num_ranks(flags) // 2)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                server = self.serve(folder, flags)
                if server is None:
                    return
                with server:
                    self.check_server(server, prompts)
                self.assertEqual(worker.wait(30), 0)
            finally:
                worker.kill()
                worker.wait()


def add_test(way, case):
    name = "test_" + way + "_" + re.sub("[-.]", "_", case.name)
    setattr(GoldenRanks, name, lambda self: self.check(case, WAYS[way]))


if DEVICE != "cpu":
    NUM_CARDS = num_cards()
    WAYS = {way: flags for way, flags in WAYS.items() if num_ranks(flags) <= NUM_CARDS}
for index, each_way in enumerate(WAYS):
    fitting = [case for case in golden.all_cases()
               if "experts" not in each_way or has_experts(case)]
    chosen = fitting if ALL else [fitting[5 * index % len(fitting)]]
    for each_case in chosen:
        add_test(each_way, each_case)

if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
