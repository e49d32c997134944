#!/usr/bin/env python3
"""Drives the executable as a user does.

usage: tests/cli_test.py ATOM SOURCE_FOLDER [unittest arguments]
"""
import collections
import http.server
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

ATOM = sys.argv[1]
ROOT = pathlib.Path(sys.argv[2])
sys.path.append(str(ROOT / "tests" / "support"))
from golden_answers import golden_cases, machine_cases  # noqa: E402  (its folder is known only now)

MODEL = str(ROOT / "models" / "tldr-8m")
TIMEOUT = 300
# Where commands that run a model do it; without it they choose.
DEVICE = os.environ.get("ATOM_TEST_DEVICE")
ENGINE_COMMANDS = ("generate", "chat", "bench")
COMMANDS = ENGINE_COMMANDS + ("plan", "inspect")


def atom(*args, stdin=""):
    if DEVICE and args and args[0] in ENGINE_COMMANDS:
        args = (args[0], "--device", DEVICE, *args[1:])
    return subprocess.run([ATOM, *args], input=stdin, capture_output=True, text=True,
                          timeout=TIMEOUT)


def json_lines(result):
    # Standard JSON only: Python would take NaN and Infinity.
    def refuse(constant):
        raise ValueError(f"not JSON: {constant}")
    return [json.loads(line, parse_constant=refuse) for line in result.stdout.splitlines()]


def config_only(folder, **changes):
    """A checkpoint of nothing but a config.json, small enough for every machine."""
    config = json.loads((pathlib.Path(MODEL) / "config.json").read_text())
    config.update(changes)
    (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
    return str(folder)


class CommandTest(unittest.TestCase):
    def expect(self, result, code):
        self.assertEqual(result.returncode, code, result.stderr + result.stdout[-2000:])
        return result


class Usage(CommandTest):
    def test_wrong_option_suggests_the_nearest(self):
        result = self.expect(atom("generate", MODEL, "tar", "--temprature", "0"), 2)
        self.assertIn("did you mean --temperature?", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_wrong_command_suggests_the_nearest(self):
        result = self.expect(atom("genrate"), 2)
        self.assertIn("did you mean generate?", result.stderr)

    def test_nothing_is_usage(self):
        self.expect(atom(), 2)
        for command in COMMANDS:
            self.assertIn("CHECKPOINT", self.expect(atom(command), 2).stderr)

    def test_values_out_of_range(self):
        for option, value in (("--top-p", "0"), ("--top-p", "nan"), ("--temperature", "-1"),
                              ("--n", "0"), ("--max-tokens", "1.5"), ("--min-p", "2"),
                              ("--logit-bias", "5"), ("--logit-bias", "5:101"),
                              ("--repetition-penalty", "0"), ("--presence-penalty", "3"),
                              ("--frequency-penalty", "-3"), ("--logprobs", "65"),
                              ("--stop", ""), ("--stop-token-ids", "1,x"), ("--dtype", "int3"),
                              ("--block-size", "0"), ("--kv-cache-memory", "many")):
            with self.subTest(option=option, value=value):
                result = self.expect(atom("generate", MODEL, "tar", option, value), 2)
                self.assertIn(option, result.stderr)

    def test_empty_values_are_named(self):
        self.assertIn("--api-key: ", self.expect(atom("serve", MODEL, "--api-key", ""), 2).stderr)

    def test_help_and_version(self):
        self.assertRegex(self.expect(atom("--version"), 0).stdout, r"^atom \d+\.\d+\.\d+\n$")
        overview = self.expect(atom("--help"), 0).stdout
        for command in COMMANDS + ("doctor",):
            self.assertIn(f"  {command} ", overview)
            text = self.expect(atom(command, "--help"), 0).stdout
            self.assertEqual(text, self.expect(atom("help", command), 0).stdout)
            self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_documentation_is_current(self):
        documented = (ROOT / "docs" / "cli.md").read_text()
        current = subprocess.run([str(ROOT / "tools" / "document_cli.sh"), ATOM], check=True,
                                 capture_output=True, text=True).stdout
        self.assertEqual(documented, current, "run tools/document_cli.sh ATOM > docs/cli.md")

    def test_missing_checkpoint(self):
        for command in COMMANDS:
            args = ("tar",) if command == "generate" else ()
            result = self.expect(atom(command, "/no/such/folder", *args), 1)
            self.assertIn("/no/such/folder: no such folder; give the folder of a checkpoint",
                          result.stderr)

    def test_unknown_architecture_lists_the_known(self):
        with tempfile.TemporaryDirectory() as folder:
            config_only(folder, architectures=["FooForCausalLM"])
            result = self.expect(atom("generate", folder, "tar"), 1)
        self.assertIn("FooForCausalLM", result.stderr)
        self.assertIn("Qwen3ForCausalLM", result.stderr)

    def test_other_spellings(self):
        result = atom("generate", "--model", MODEL, "--max_tokens=2", "--no-enable-prefix-caching",
                      "-tp", "1", "--", "tar")
        self.expect(result, 0)


class Generate(CommandTest):
    def golden(self, dtype):
        cases = machine_cases(ATOM, MODEL, dtype, DEVICE or "auto")
        longest = max(len(case["output_ids"]) for case in cases)
        result = self.expect(
            atom("generate", MODEL, "--chat", "--json", "--dtype", dtype, "--max-tokens",
                 str(longest), "--", *[case["question"] for case in cases]), 0)
        outputs = json_lines(result)
        self.assertEqual(len(outputs), len(cases))
        for case, output in zip(cases, outputs):
            self.assertEqual(output["prompt_token_ids"], case["prompt_ids"])
            self.assertEqual(output["outputs"][0]["token_ids"], case["output_ids"])

    def test_golden_answers_float32(self):
        self.golden("float32")

    def test_golden_answers_bfloat16(self):
        self.golden("bfloat16")

    def test_one_prompt_streams_and_ends_with_figures(self):
        result = self.expect(atom("generate", MODEL, "--chat", "tar", "--max-tokens", "8"), 0)
        self.assertTrue(result.stdout.startswith("`tar`: "), result.stdout)
        self.assertTrue(result.stdout.endswith("\n"))
        self.assertRegex(result.stderr, r"^prompt tokens: 11, generated: 8, "
                                        r"time to first token: .* [mu]?s, [0-9.]+ tokens/s\n$")

    def test_bad_prompt_harms_no_other(self):
        alone = self.expect(atom("generate", MODEL, "tar", "--json", "--max-tokens", "4"), 0)
        lines = '{"prompt": "tar"}\n{"prompt_token_ids": [1, 99999]}\nnot JSON\n{"prompt": ""}\n'
        result = self.expect(
            atom("generate", MODEL, "--prompts-file", "-", "--json", "--max-tokens", "4",
                 stdin=lines), 1)
        good, id_out_of_range, no_json, empty = json_lines(result)
        self.assertEqual(good["outputs"], json_lines(alone)[0]["outputs"])
        self.assertIn("99999", id_out_of_range["error"]["message"])
        self.assertIn("standard input:3", no_json["error"]["message"])
        self.assertIn("empty", empty["error"]["message"])
        shown = self.expect(atom("generate", MODEL, "tar", "", "--max-tokens", "4"), 1)
        self.assertIn("prompt 2: the prompt is empty", shown.stderr)
        self.assertEqual(shown.stdout, good["outputs"][0]["text"] + "\n")

    def test_profile(self):
        with tempfile.TemporaryDirectory() as folder:
            result = self.expect(
                atom("generate", MODEL, "tar", "--max-tokens", "3", "--profile", folder), 0)
            path, = pathlib.Path(folder).iterdir()
            self.assertIn("attention", path.read_text())
            self.assertIn(str(path), result.stderr)
            result = self.expect(
                atom("generate", MODEL, "tar", "--profile-dir", path), 1)
        self.assertEqual((result.stdout, "cannot be made" in result.stderr), ("", True))

    def test_prompt_over_the_limit(self):
        result = self.expect(atom("generate", MODEL, "tar " * 40, "--max-model-len", "16"), 1)
        self.assertIn("limit is 16 tokens", result.stderr)

    def test_answer_over_the_limit(self):
        for prompt in (["tar zip tar"], ["tar", "--chat"], ["tar zip tar", "zip", "--json"]):
            result = self.expect(
                atom("generate", MODEL, *prompt, "--max-tokens", "31", "--max-model-len", "32"), 1)
            self.assertRegex(result.stdout + result.stderr, r"--max-tokens is 31, and a prompt of "
                             r"\d+ tokens leaves room for \d+ of the model's 32")

    def test_prompts_from_lines_and_standard_input(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("tar\n\ncurl\n")
            file.flush()
            result = atom("generate", MODEL, "-", "--prompts-file", file.name, "--json",
                          "--max-tokens", "1", stdin="git\n")
        tokens = [line["prompt_token_ids"] for line in json_lines(self.expect(result, 0))]
        words = json_lines(self.expect(
            atom("generate", MODEL, "git", "tar", "curl", "--json", "--max-tokens", "1"), 0))
        self.assertEqual(tokens, [line["prompt_token_ids"] for line in words])

    def test_token_ids_in_and_out(self):
        golden = golden_cases(MODEL, "float32")[0]
        args = (MODEL, "--skip-tokenizer-init", "--max-tokens", "5", "--dtype", "float32")
        for spelling in (",".join, " ".join):
            prompt = spelling(map(str, golden["prompt_ids"]))
            result = self.expect(atom("generate", *args, prompt), 0)
            self.assertEqual(list(map(int, result.stdout.split())), golden["output_ids"][:5])
        result = self.expect(atom("generate", *args, json.dumps(golden["prompt_ids"]), "1,2"), 0)
        self.assertEqual(list(map(int, result.stdout.splitlines()[0].split())),
                         golden["output_ids"][:5])
        self.assertIn("token id", self.expect(atom("generate", *args, "tar"), 1).stderr)

    def test_scores_and_bias(self):
        result = self.expect(
            atom("generate", MODEL, "tar", "--json", "--max-tokens", "3", "--logprobs", "2",
                 "--prompt-logprobs", "1", "--logit-bias", "42:100", "--n", "2"), 0)
        output = json_lines(result)[0]
        self.assertEqual(len(output["outputs"]), 2)
        for answer in output["outputs"]:
            self.assertEqual(answer["token_ids"], [42, 42, 42])
            self.assertEqual(len(answer["logprobs"]), 3)
            self.assertEqual(len(answer["logprobs"][0]["top"]), 2)
        self.assertEqual(len(output["prompt_logprobs"] or [None]), len(output["prompt_token_ids"]))

    def test_stop(self):
        whole = self.expect(atom("generate", MODEL, "--chat", "tar", "--max-tokens", "40"), 0)
        result = self.expect(atom("generate", MODEL, "--chat", "tar", "--json", "--stop",
                                  "utility", "--stop", "xyzzy"), 0)
        answer = json_lines(result)[0]["outputs"][0]
        self.assertEqual(answer["text"], whole.stdout.split("utility")[0])
        self.assertEqual((answer["finish_reason"], answer["stop_reason"]), ("stop", "utility"))

    def test_seeds(self):
        def texts(seed):
            result = atom("generate", MODEL, "tar", "curl", "--json", "--temperature", "2",
                          "--max-tokens", "12", "--seed", seed)
            return [line["outputs"][0]["token_ids"] for line in json_lines(self.expect(result, 0))]
        self.assertEqual(texts("1"), texts("1"))
        self.assertNotEqual(texts("1"), texts("2"))

    def test_reader_that_goes_away(self):
        child = subprocess.Popen([ATOM, "generate", MODEL, "--chat", "tar", "--ignore-eos",
                                  "--max-tokens", "1900"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        child.stdout.read(10)
        child.stdout.close()
        self.assertEqual(child.wait(TIMEOUT), 1)
        self.assertEqual(child.stderr.read(), b"")
        child.stderr.close()

    def test_interrupt(self):
        child = subprocess.Popen([ATOM, "generate", MODEL, "--chat", "tar", "--ignore-eos",
                                  "--max-tokens", "1900"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        child.stdout.read(10)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=TIMEOUT)
        self.assertEqual(child.returncode, 130)


class Chat(CommandTest):
    def test_piped(self):
        result = self.expect(
            atom("chat", MODEL, "--max-tokens", "8", stdin="tar\n/clear\ntar\n/nonsense\n"), 1)
        first, second = result.stdout.splitlines()
        self.assertEqual(first, second)
        self.assertTrue(first.startswith("`tar`: "))
        self.assertIn("/nonsense", result.stderr)

    def test_turns_are_remembered(self):
        once = self.expect(atom("chat", MODEL, "--max-tokens", "4", stdin="tar\n"), 0)
        twice = self.expect(
            atom("chat", MODEL, "--max-tokens", "4", "--max-model-len", "24",
                 stdin="tar\ntar\n/clear\ntar\n"), 1)
        self.assertEqual(twice.stdout.splitlines(), once.stdout.splitlines() * 2)
        self.assertIn("/clear", twice.stderr)

    def test_template_of_a_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write("{% for m in messages %}{{ m.content }}{{ extra }}{% endfor %}")
            file.flush()
            args = ("--chat-template", file.name, "--chat-template-kwargs", '{"extra": "!"}')
            result = self.expect(atom("generate", MODEL, "--chat", "tar", "--json",
                                      "--max-tokens", "1", *args), 0)
        plain = self.expect(atom("generate", MODEL, "tar!", "--json", "--max-tokens", "1"), 0)
        self.assertEqual(json_lines(result)[0]["prompt_token_ids"],
                         json_lines(plain)[0]["prompt_token_ids"])


class Terminal:
    """A child on a pseudo-terminal."""

    def __init__(self, *args, columns=0):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            if columns:
                termios.tcsetwinsize(sys.stdout.fileno(), (24, columns))
            os.environ.update(NO_COLOR="1", TERM="xterm")
            os.execv(ATOM, [ATOM, *args])
        self.text = ""

    def read_until(self, wanted, start=0):
        """Waits for `wanted` behind `start` and returns where it ends."""
        deadline = time.monotonic() + TIMEOUT
        while wanted not in self.text[start:]:
            left = deadline - time.monotonic()
            if left < 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"no {wanted!r} in {self.text!r}")
            try:
                chunk = os.read(self.fd, 4096)
            except OSError:
                chunk = b""
            if not chunk:
                raise AssertionError(f"ended without {wanted!r}: {self.text!r}")
            self.text += chunk.decode(errors="replace")
        return self.text.index(wanted, start) + len(wanted)

    def type(self, text):
        os.write(self.fd, text.encode())

    def exit_code(self):
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    os.read(self.fd, 4096)
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        raise AssertionError("does not end")


class Completion(CommandTest):
    def completions(self, *words):
        script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                  '_atom_complete; printf "%s\\n" "${COMPREPLY[@]}"')
        return subprocess.run(
            ["bash", "-c", script, "bash", str(ROOT / "tools" / "completion.bash"), ATOM, *words],
            check=True, capture_output=True, text=True, timeout=TIMEOUT).stdout.split()

    def test_words_of_the_help(self):
        for words, wanted in (
                (("ge",), ["generate"]),
                (("bench", "r"), ["roofline"]),
                (("bench", "serve", "--base"), ["--base-url"]),
                (("serve", "--scheduling-policy", ""), ["fcfs", "priority", "prefill-first"]),
                (("bench", "m", "--load-dummy", "x"), ["xavier"]),
                (("generate", "m", "--no-ignore"), ["--no-ignore-eos"]),
                (("generate", "m", "--kv-cache-memory"),
                 ["--kv-cache-memory", "--kv-cache-memory-bytes"]),
                (("generate", "models/tl"), [])):
            self.assertEqual(self.completions(*words), wanted)


class HelpOnATerminal(CommandTest):
    def test_lines_fit(self):
        for columns in (80, 60):
            for command in ("", "generate", "serve", "plan"):
                terminal = Terminal(*command.split(), "--help", columns=columns)
                last = "interrupted." if not command else "This text."
                terminal.read_until(last)
                self.assertEqual(terminal.exit_code(), 0)
                lines = terminal.text.replace("\r", "").splitlines()
                # A word that is longer than a line stays whole.
                self.assertEqual([line for line in lines
                                  if len(line) > columns and " " in line.strip()], [])


class ChatOnATerminal(CommandTest):
    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        terminal = Terminal("chat", MODEL, "--no-history", "--ignore-eos", "--max-tokens", "1900")
        here = terminal.read_until("you> ")
        terminal.type("tar\r")
        here = terminal.read_until("atom> `tar`", here)
        terminal.type("\x03")
        here = terminal.read_until("you> ", here)
        generated = re.search(r"generated: (\d+), ", terminal.text)
        self.assertLess(int(generated[1]), 1900)
        terminal.type("/clear\r")
        here = terminal.read_until("forgotten", here)
        terminal.read_until("you> ", here)
        terminal.type("\x04")
        self.assertEqual(terminal.exit_code(), 0)

    def test_ctrl_c_at_the_prompt_leaves(self):
        terminal = Terminal("chat", MODEL, "--no-history")
        terminal.read_until("you> ")
        terminal.type("tar\x03")
        terminal.type("\x03")
        self.assertEqual(terminal.exit_code(), 0)


class Plans(CommandTest):
    def test_plan(self):
        plan = json_lines(self.expect(atom("plan", MODEL, "--json"), 0))[0]
        self.assertEqual(plan["total"], plan["weights"] + plan["activations"] +
                         plan["step_inputs"] + plan["kv_cache"])
        self.assertIn("KV cache", self.expect(atom("plan", MODEL), 0).stdout)

    def test_plan_that_does_not_fit(self):
        with tempfile.TemporaryDirectory() as folder:
            config_only(folder, num_hidden_layers=4000, layer_types=None, hidden_size=16384,
                        intermediate_size=65536)
            self.assertIn("does not fit", self.expect(atom("plan", folder), 1).stderr)

    def test_inspect(self):
        report = json_lines(self.expect(atom("inspect", MODEL, "--json", "--tensors"), 0))[0]
        self.assertEqual(report["architecture"], "Qwen3ForCausalLM")
        self.assertGreater(len(report["tensors"]), 50)
        table = self.expect(atom("inspect", MODEL, "--tensors"), 0).stdout
        self.assertIn("model.embed_tokens.weight", table)

    def test_inspect_counts_what_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(MODEL, folder, dirs_exist_ok=True)
            config_only(folder, num_hidden_layers=9, layer_types=None)
            result = self.expect(atom("inspect", folder), 1)
        self.assertIn("layers.8", result.stderr)


class Bench(CommandTest):
    def test_files_are_tried_before_the_work(self):
        # A checkpoint that is not there would be named otherwise.
        for command in (("bench", "/no/checkpoint", "--output-json"),
                        ("bench", "breakdown", "/no/checkpoint", "--output-trace"),
                        ("bench", "serve", "--html")):
            for path, why in (("/no/such/folder/file", "No such file or directory"),
                              ("/tmp", "is a folder")):
                result = self.expect(atom(*command, path), 1)
                self.assertIn(path, result.stderr)
                self.assertIn(why, result.stderr)

    def test_latency_without_weights(self):
        with tempfile.TemporaryDirectory() as folder:
            config_only(folder, num_hidden_layers=2, layer_types=None)
            path = folder + "/result.json"
            result = self.expect(
                atom("bench", "latency", folder, "--load-dummy", "--input-len", "8",
                     "--output-len", "128", "--batch-size", "2", "--num-iters", "2", "--dtype",
                     "float32", "--output-json", path), 0)
            report = json.loads(pathlib.Path(path).read_text())
        self.assertIn("latency", result.stdout)
        measured = report["results"][0]
        self.assertEqual((measured["batch_size"], len(measured["samples"])), (2, 2))
        self.assertEqual(len(report["roofs"]), 3)
        for name in ("decode_step", "time_to_first_token", "decode_share_of_bound",
                     "prefill_share_of_peak"):
            self.assertGreater(measured[name], 0)

    def test_shapes_by_difference(self):
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/result.json"
            self.expect(
                atom("bench", MODEL, "--shapes", "1x40x12,3x20x1", "--difference", "--num-iters",
                     "1", "--output-json", path), 0)
            results = json.loads(pathlib.Path(path).read_text())["results"]
        self.assertEqual([(r["batch_size"], r["input_len"], r["output_len"]) for r in results],
                         [(1, 40, 12), (3, 20, 1)])
        self.assertIsNone(results[1]["decode_step"])
        for shapes in ("", "1x2", "1x2x3x4", "0x1x1", "1x1x1,", "axbxc"):
            result = self.expect(atom("bench", MODEL, "--shapes", shapes), 2)
            self.assertIn("--shapes", result.stderr)

    def test_forced_text(self):
        with tempfile.TemporaryDirectory() as folder:
            path, text = folder + "/result.json", pathlib.Path(folder) / "text"
            command = ["bench", MODEL, "--forced-text", str(text), "--input-len", "40",
                       "--output-len", "61", "--num-iters", "1", "--method", "ngram",
                       "--num-speculative-tokens", "3", "--output-json", path]
            # Drafts are right where the text repeats, though the model would say something else.
            text.write_text("the fox saw the hen and ran. " * 40)
            self.expect(atom(*command), 0)
            sample = json.loads(pathlib.Path(path).read_text())["results"][0]["samples"][0]
            self.assertEqual(sample["num_verifications"], 15)
            self.assertEqual(sample["num_accepted_per_position"][:3], [15, 15, 15])
            text.write_text(" ".join(map(str, range(500, 800))))
            self.expect(atom(*command), 0)
            sample = json.loads(pathlib.Path(path).read_text())["results"][0]["samples"][0]
            self.assertLess(sum(sample["num_accepted_per_position"]), 30)
            text.write_text("the fox")
            self.assertIn("--forced-text", self.expect(atom(*command), 1).stderr)
            result = self.expect(atom("bench", "breakdown", *command[1:]), 2)
            self.assertIn("breakdown has no answers", result.stderr)

    def test_breakdown(self):
        with tempfile.TemporaryDirectory() as folder:
            path, trace = folder + "/result.json", folder + "/trace.json"
            result = self.expect(
                atom("bench", "breakdown", MODEL, "--shapes", "2x33x2,1x20x1", "--num-iters", "2",
                     "--output-json", path, "--output-trace", trace), 0)
            report = json.loads(pathlib.Path(path).read_text())
            events = json.loads(pathlib.Path(trace).read_text())["traceEvents"]
        self.assertIn("decode of 2, 33 tokens each", result.stdout)
        layers = json.loads((pathlib.Path(MODEL) / "config.json").read_text())["num_hidden_layers"]
        for step in report["steps"]:
            calls = collections.Counter()
            for row in step["operators"]:
                calls[row["operator"]] += row["calls"]
                self.assertGreater(row["seconds"], 0)
            self.assertEqual(calls["linear head"], 1)
            for name in ("qkv", "output", "gate and up", "down"):
                self.assertEqual(calls[f"linear {name}"], layers)
            self.assertEqual(calls["attention"], layers)
            self.assertAlmostEqual(sum(row["seconds"] for row in step["operators"]),
                                   step["seconds"], places=6)
        self.assertEqual(sum(event["tid"] == 1 for event in events), 2)

    def test_profile_of_the_measured_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            result = self.expect(
                atom("bench", MODEL, "--input-len", "5", "--output-len", "4", "--num-iters", "2",
                     "--warmup", "3", "--profile-dir", folder), 0)
            path, = pathlib.Path(folder).iterdir()
            trace = json.loads(path.read_text())
        self.assertIn(str(path), result.stderr)
        steps = [event for event in trace["traceEvents"] if "tokens" in event["args"]]
        self.assertEqual(collections.Counter(step["name"] for step in steps),
                         {"prefill": 2, "decode": 6})
        result = self.expect(atom("bench", "breakdown", MODEL, "--profile-dir", folder), 2)
        self.assertIn("--output-trace", result.stderr)

    def test_throughput(self):
        result = self.expect(
            atom("bench", MODEL, "--mode", "throughput", "--num-prompts", "9", "--input-len", "5",
                 "--output-len", "3", "--num-iters", "1", "--warmup", "0", "--max-num-seqs", "4"),
            0)
        self.assertIn("throughput", result.stdout)


class Doctor(CommandTest):
    def test_says_what_the_machine_has(self):
        result = atom("doctor")
        self.assertIn(result.returncode, (0, 1), result.stderr)
        for section in ("CPU", "memory", "GPU", "system", "versions"):
            self.assertIn(f"\n{section}\n", "\n" + result.stdout)
        self.assertRegex(result.stdout, r"\d+ problem\(s\), \d+ note\(s\)\n$")
        self.assertNotIn("\x1b", result.stdout)

    def test_json_agrees_with_the_exit_code(self):
        result = atom("doctor", "--json")
        report, = json_lines(result)
        problems = [f for f in report["findings"] if f["severity"] == "problem"]
        notes = [f for f in report["findings"] if f["severity"] == "note"]
        self.assertEqual(report["num_problems"], len(problems))
        self.assertEqual(report["num_notes"], len(notes))
        self.assertEqual(result.returncode, 1 if problems else 0)
        for finding in report["findings"]:
            self.assertTrue(finding["value"], finding)
            self.assertEqual("advice" in finding, finding["severity"] != "ok", finding)

    def test_sees_that_the_port_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
            report, = json_lines(atom("doctor", "--json", "--port", port))
        finding, = [f for f in report["findings"] if f["name"] == f"port {port}"]
        self.assertEqual(finding["severity"], "note")

    def test_changes_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = os.path.join(folder, "cache")
            result = subprocess.run([ATOM, "doctor"], capture_output=True, text=True,
                                    env={**os.environ, "HF_HUB_CACHE": cache}, timeout=TIMEOUT)
            self.assertIn(cache, result.stdout)
            self.assertEqual(os.listdir(folder), [])

    def test_refuses_arguments(self):
        self.expect(atom("doctor", "now"), 2)
        self.expect(atom("doctor", "--port", "0"), 2)


class Log(CommandTest):
    def test_json_lines(self):
        result = subprocess.run(
            [ATOM, "doctor"], capture_output=True, text=True, timeout=TIMEOUT,
            env={**os.environ, "ATOM_CPU_ISA": "6502\n\"", "ATOM_LOG_FORMAT": "json"})
        line, = [json.loads(line) for line in result.stderr.splitlines()]
        self.assertEqual(line["level"], "warning")
        self.assertIn("ATOM_CPU_ISA='6502\n\"'", line["message"])
        self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")

    def test_unknown_formats(self):
        self.assertIn("text|json", self.expect(atom("plan", MODEL, "--log-format", "xml"), 2).stderr)
        result = subprocess.run([ATOM, "doctor"], capture_output=True, text=True, timeout=TIMEOUT,
                                env={**os.environ, "ATOM_LOG_FORMAT": "xml"})
        self.assertIn("text or json", self.expect(result, 1).stderr)


class FakeServer(http.server.BaseHTTPRequestHandler):
    """Streams max_tokens tokens of an answer at once; the third answer is an error."""
    protocol_version = "HTTP/1.1"
    num_answers = 0

    def log_message(self, *args):
        pass

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(200, b'{"data": [{"id": "fake"}]}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            return self.reply(200, json.dumps({"tokens": list(range(500))}).encode())
        FakeServer.num_answers += 1
        if FakeServer.num_answers == 3:
            return self.reply(503, b'{"error": {"message": "overloaded"}}')
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for i in range(body["max_tokens"]):
            event = {"choices": [{"text": " a", "finish_reason": None}]}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]}
        self.wfile.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() +
                         b"\n\ndata: [DONE]\n\n")
        self.close_connection = True


class BenchServe(CommandTest):
    def test_against_a_server(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeServer)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with tempfile.TemporaryDirectory() as folder:
            result = self.expect(
                atom("bench", "serve", "--base-url", f"http://127.0.0.1:{server.server_port}",
                     "--num-prompts", "8", "--input-len", "20", "--output-len", "6", "--goodput",
                     "ttft:60000", "e2el:60000", "--request-rate", "200", "--save-result",
                     folder + "/result.json", "--html", folder + "/report.html"), 0)
            report = json.loads(pathlib.Path(folder, "result.json").read_text())
            page = pathlib.Path(folder, "report.html").read_text()
        server.shutdown()
        server.server_close()
        self.assertIn("request throughput", result.stdout)
        self.assertIn("overloaded", result.stderr)
        self.assertEqual((report["completed"], report["failed"]), (7, 1))
        self.assertEqual((report["total_input_tokens"], report["total_output_tokens"]),
                         (7 * 20, 7 * 6))
        self.assertEqual(report["model_id"], "fake")
        self.assertGreater(report["p99_ttft_ms"], 0)
        self.assertIn("<svg", page)

    def test_results_are_named_as_vllm_names_them(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeServer)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        common = ["bench", "serve", "--backend=vllm", "--trust-remote-code", "--base-url",
                  f"http://127.0.0.1:{server.server_port}", "--num-prompts=8", "--input-len=20",
                  "--output-len=6", "--save-result"]
        with tempfile.TemporaryDirectory() as folder:
            result = self.expect(atom(*common, "--result-dir", folder, "--result-filename=a.json"),
                                 0)
            self.assertIn("--trust-remote-code has no effect", result.stderr)
            self.expect(atom(*common, f"--result-dir={folder}"), 0)
            names = sorted(path.name for path in pathlib.Path(folder).iterdir())
            self.assertEqual(names[0], "a.json")
            self.assertRegex(names[1], r"^atom-\d{8}-\d{6}\.json$")
        server.shutdown()
        server.server_close()

    def test_wrong_options(self):
        for args in (("--request-rate", "0"), ("--backend", "x"), ("--dataset", "sharegpt"), ("--goodput", "foo:1"),
                     ("--burst-size", "3"), ("--endpoint", "x"), ("--input-len", "0"),
                     ("--metric-percentiles", "101"), ("--percentile-metrics", "x"),
                     ("--num-prompts", "0"), ("--range-ratio", "1"), ("--dataset-path", "x"),
                     ("--ramp-up", "linear"), ("--temperature", "-1")):
            with self.subTest(args=args):
                self.assertIn(args[0], self.expect(atom("bench", "serve", *args), 2).stderr)
        result = self.expect(atom("bench", "serve", "--base-url", "http://127.0.0.1:1"), 1)
        self.assertIn("127.0.0.1:1", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
