"""What tools/bench_ranks.sh would run on 2, 4 and 8 GPUs: every command is one that the program takes,
and what it measures fits cards of 141 GB: bench_ranks_test.py ATOM REPOSITORY"""

import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

ATOM, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
SCRIPT = ROOT / "tools" / "bench_ranks.sh"
LINE = re.compile(r"^(\S+) (\d+): (.*)$")
# Flags that say what a rank takes.
PLANNED = {"-tp", "-pp", "-dp", "--quantization", "--max-model-len", "--max-num-batched-tokens",
           "--max-num-seqs", "--method", "--num-speculative-tokens"}
PLANNED_ALONE = {"--enable-dp-attention", "--enable-expert-parallel"}


def run(command, **more):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **more}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False,
                          env=environment)


def plan_of(command):
    """The plan of what `atom bench MODE SHAPE FLAGS...` would measure."""
    plan = [ATOM, "plan", command[3], "--device", "cpu", "--assume-memory", "141GB"]
    for name, value in zip(command[4:], [*command[5:], ""]):
        if name in PLANNED:
            plan += [name, value]
        elif name in PLANNED_ALONE:
            plan.append(name)
    return plan


class BenchRanks(unittest.TestCase):
    def commands(self, cards, folder):
        printed = run([SCRIPT, "--dry-run", "--cards", str(cards), "--atom", ATOM, "--out", folder])
        self.assertEqual(printed.returncode, 0, printed.stderr)
        self.assertEqual(printed.stderr, "")
        *lines, end = printed.stdout.splitlines()
        self.assertIn(" 0 failures", end)
        commands = {}
        for line in lines:
            name, limit, command = LINE.match(line).groups()
            self.assertNotIn(name, commands)
            self.assertGreater(int(limit), 0)
            commands[name] = shlex.split(command)
        return commands

    def check(self, name, command):
        if command[0] == str(ATOM) and command[1] == "bench":
            self.check_bench(name, command)
        elif command[0] == str(ATOM):
            self.assertEqual(run(command).returncode, 0, name)
        elif "kill_ranks.py" in command[1]:
            served = run([ATOM, "serve", command[3], *command[5:]])
            self.assertEqual(served.returncode, 1, served.stderr)
            self.assertIn("--device cuda", served.stderr)
        else:
            self.assertIn(name, {"machine", "goldens", "collectives_bench", "expert_exchange_bench"})

    def check_bench(self, name, command):
        # A flag that nobody knows would be an error of usage, 2.
        refused = run(command)
        self.assertEqual(refused.returncode, 1, f"{name}: {refused.stderr}")
        self.assertIn("--device cuda", refused.stderr, name)
        planned = run(plan_of(command))
        self.assertEqual(planned.returncode, 0, f"{name}: {planned.stderr}")

    def check_cards(self, cards):
        with tempfile.TemporaryDirectory() as folder:
            commands = self.commands(cards, folder)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                for done in [pool.submit(self.check, *each) for each in commands.items()]:
                    done.result()
        return commands

    def test_two_cards(self):
        commands = self.check_cards(2)
        self.assertIn("llama-8b-tp2", commands)
        self.assertNotIn("deepseek-r1-tp2", commands)

    def test_four_cards(self):
        commands = self.check_cards(4)
        self.assertLessEqual({"llama-8b-tp4", "llama-70b-fp8-tp4", "gpt-oss-120b-tp4-ep",
                              "qwen3-235b-tp2-dp2-ep"}, commands.keys())

    def test_eight_cards(self):
        commands = self.check_cards(8)
        self.assertLessEqual({"llama-8b-tp1", "llama-8b-tp8", "llama-8b-load-dp8",
                              "llama-70b-fp8-tp4", "gpt-oss-120b-tp4-ep", "gpt-oss-120b-tp8-ep",
                              "qwen3-235b-tp8-ep", "qwen3-235b-tp4-dp2-ep", "deepseek-r1-tp8",
                              "deepseek-r1-tp8-mtp3", "deepseek-r1-dp8-ep-2048", "kimi-k2"},
                             commands.keys())

    def test_benches_beside_the_program_may_be_links(self):
        with tempfile.TemporaryDirectory() as folder:
            links = [pathlib.Path(folder) / name
                     for name in ("collectives_bench", "expert_exchange_bench")]
            for link in links:
                link.symlink_to(ATOM)
            printed = run([SCRIPT, "--dry-run", "--cards", "2", "--atom", f"{folder}/atom",
                           "--out", f"{folder}/out", "exchanges"])
            self.assertEqual(printed.returncode, 0, printed.stderr)
            for link in links:
                self.assertIn(f"{link.name} 120: {link} 2\n", printed.stdout)

    def test_what_it_does_not_know_is_refused(self):
        self.assertEqual(run([SCRIPT, "--dry-run", "--cards", "8", "llama"]).returncode, 2)
        self.assertEqual(run([SCRIPT, "--dry-run", "--cards", "1"]).returncode, 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
