#!/usr/bin/env python3
"""What clients expect of the server beside OpenAI's basics: unknown fields, other APIs, small
endpoints, mistakes of the command line.

usage: tests/server/api_test.py ATOM SOURCE_FOLDER [unittest arguments]
"""
import json
import http.client
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

from server_process import ServerProcess

ATOM = sys.argv[1]
MODEL = pathlib.Path(sys.argv[2]) / "models" / "tldr-8m"
TOOL = {"type": "function", "function": {
    "name": "lookup", "parameters": {"type": "object", "properties": {"name": {"type": "string"}}}}}
ASK = [{"role": "user", "content": "What is tar?"}]


def named_events(server, path, body):
    """The events of a stream that names them: [(event, data)]."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=300)
    try:
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        response = connection.getresponse()
        text = response.read().decode()
        assert response.status == 200, text
    finally:
        connection.close()
    events = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            events.append((lines["event"], json.loads(lines["data"])))
    return events


class Api(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess(ATOM, MODEL, "--dtype", "float", "--served-model-name", "demo",
                                   "--max-model-len", 512, "--root-path", "/proxy/atom",
                                   "--max-logprobs", 20)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def post(self, path, body, status=200):
        got, _, answer = self.server.post(path, body)
        self.assertEqual(got, status, answer)
        return answer

    def get(self, path, status=200):
        got, _, answer = self.server.request("GET", path)
        self.assertEqual(got, status, answer)
        return answer

    def chat(self, status=200, **fields):
        return self.post("/v1/chat/completions",
                         {"messages": ASK, "max_tokens": 8, "temperature": 0, **fields}, status)

    def test_second_turns_of_clients(self):
        first = self.chat()["choices"][0]["message"]
        messages = [*ASK, {**first, "provider_specific_fields": None, "parsed": None,
                           "audio": None, "function_call": None}, *ASK]
        plain = [*ASK, {"role": "assistant", "content": first["content"]}, *ASK]
        self.assertEqual(self.chat(messages=messages)["choices"], self.chat(messages=plain)["choices"])

    def test_unknown_fields_are_told_once_and_counted(self):
        def counted():
            line = next(line for line in self.get("/metrics").splitlines()
                        if line.startswith("atom:unknown_fields_total "))
            return int(line.split()[1])
        before = counted()
        for _ in range(3):
            self.chat(surprise={"a": 1}, store=True, verbosity="low")
        self.assertEqual(counted() - before, 3)
        self.assertEqual(self.server.output().count("field=surprise"), 1, self.server.output())
        self.assertEqual(self.chat(400, logits_processors=["x"])["error"]["code"],
                         "unsupported_field")

    def test_errors_name_the_field_that_was_sent(self):
        error = self.chat(400, max_tokens=None, max_completion_tokens=4096)["error"]
        self.assertEqual(error["param"], "max_completion_tokens")
        self.assertIn("max_completion_tokens is 4096", error["message"])
        for fields, param in (({"logit_bias": {"9999": 1}}, "logit_bias.9999"),
                              ({"stop_token_ids": [9999]}, "stop_token_ids[0]"),
                              ({"logprobs": True, "top_logprobs": 21}, "top_logprobs")):
            self.assertEqual(self.chat(400, **fields)["error"]["param"], param)
        error = self.post("/v1/completions", {"prompt": [1, 999999]}, 400)["error"]
        self.assertEqual(error["param"], "prompt[1]")

    def test_offsets_index_the_text(self):
        for prompt in ([0, 0, 0, 5, 6], "love \U0001F680 and"):
            choice = self.post("/v1/completions", {
                "prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 12, "temperature": 0,
                "ignore_eos": True})["choices"][0]
            offsets = choice["logprobs"]["text_offset"]
            self.assertEqual(offsets, sorted(offsets))
            self.assertLessEqual(offsets[-1], len(choice["text"]))
            for token, offset in zip(choice["logprobs"]["tokens"], offsets):
                if "\ufffd" not in token and not token.startswith("<|"):
                    self.assertEqual(choice["text"][offset:offset + len(token)], token, choice)

    def test_tokens_by_id(self):
        answer = self.chat(logprobs=True, top_logprobs=2, return_tokens_as_token_ids=True,
                           return_token_ids=True)["choices"][0]
        tokens = [entry["token"] for entry in answer["logprobs"]["content"]]
        self.assertEqual(tokens, [f"token_id:{id}" for id in answer["token_ids"]])
        answer = self.post("/v1/completions", {
            "prompt": "tar", "logprobs": 1, "max_tokens": 3, "return_tokens_as_token_ids": True})
        for token in answer["choices"][0]["logprobs"]["tokens"]:
            self.assertRegex(token, r"^token_id:\d+$")

    def test_allowed_tokens(self):
        answer = self.chat(allowed_token_ids=[100, 200], ignore_eos=True, return_token_ids=True,
                           temperature=1.5, seed=1)
        self.assertLessEqual(set(answer["choices"][0]["token_ids"]), {100, 200})

    def test_bad_words(self):
        free = self.chat(max_tokens=24)["choices"][0]["message"]["content"]
        word = next(word for word in free.split() if word.isalpha() and len(word) > 3)
        answer = self.chat(max_tokens=24, bad_words=[word])["choices"][0]["message"]["content"]
        self.assertNotIn(word, answer)
        self.assertTrue(answer)
        _, _, error = self.server.post("/v1/completions", {"prompt": "x", "bad_words": [""]})
        self.assertEqual(error["error"]["param"], "bad_words[0]")

    def test_truncated_prompts(self):
        ids = list(range(100, 140))
        answer = self.post("/v1/completions", {
            "prompt": ids, "truncate_prompt_tokens": 5, "max_tokens": 1, "return_token_ids": True})
        self.assertEqual(answer["choices"][0]["prompt_token_ids"], ids[-5:])
        long = self.post("/v1/completions", {
            "prompt": [100] * 600, "truncate_prompt_tokens": -1, "max_tokens": 10})
        self.assertEqual(long["usage"]["prompt_tokens"], 502)

    def test_usage_and_fingerprint(self):
        answer = self.chat()
        self.assertRegex(answer["system_fingerprint"], r"^fp_atom_")
        self.assertEqual(answer["usage"]["completion_tokens_details"], {"reasoning_tokens": 0})
        stream = self.server.events("/v1/chat/completions", {
            "messages": ASK, "max_tokens": 4,
            "stream_options": {"include_usage": False, "continuous_usage_stats": True}})
        self.assertFalse([event for event in stream if event.get("usage")])

    def test_other_roles(self):
        self.chat(messages=[{"role": "function", "name": "f", "content": "7"}, *ASK])

    def test_small_endpoints(self):
        self.assertEqual(self.get("/load"), {"server_load": 0})
        self.assertEqual(self.get("/ping"), {"status": "ready"})
        self.assertEqual(self.post("/ping", None), {"status": "ready"})
        info = self.get("/tokenizer_info")
        self.assertIn("tokenizer_class", info)
        self.assertIn("messages", info["chat_template"])
        rendered = self.post("/v1/chat/completions/render", {"messages": ASK})
        tokens = self.post("/tokenize", {"messages": ASK})["tokens"]
        self.assertEqual(rendered["prompt_token_ids"], tokens)
        self.assertIn("What is tar?", rendered["prompt"])

    def test_reset_of_the_prefix_cache(self):
        body = {"prompt": list(range(300, 364)), "max_tokens": 1}
        def cached():
            usage = self.post("/v1/completions", body)["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]
        cached()
        self.assertGreater(cached(), 0)
        self.post("/reset_prefix_cache", None)
        self.assertEqual(cached(), 0)
        self.assertGreater(cached(), 0)

    def test_root_path(self):
        self.assertEqual(self.get("/proxy/atom/v1/models/demo")["id"], "demo")
        self.assertEqual(self.get("/v1/models/demo")["id"], "demo")
        self.assertEqual(self.get("/openapi.json")["servers"], [{"url": "/proxy/atom"}])
        self.get("/proxy/atomic/v1/models", 404)

    def test_messages(self):
        ask = {"model": "demo", "max_tokens": 12, "temperature": 0, "messages": ASK}
        whole = self.post("/v1/messages", ask)
        self.assertEqual((whole["type"], whole["role"], whole["model"]),
                         ("message", "assistant", "demo"))
        text = self.chat(max_tokens=12)["choices"][0]["message"]["content"]
        self.assertEqual(whole["content"], [{"type": "text", "text": text}])
        self.assertEqual(whole["stop_reason"], "max_tokens")
        count = self.post("/v1/messages/count_tokens", {"model": "demo", "messages": ASK})
        usage = whole["usage"]
        self.assertEqual(count["input_tokens"],
                         usage["input_tokens"] + usage["cache_read_input_tokens"])
        self.assertEqual(usage["output_tokens"], 12)
        events = named_events(self.server, "/v1/messages", ask)
        names = [name for name, _ in events]
        self.assertEqual(names[:2], ["message_start", "content_block_start"])
        self.assertEqual(names[-3:], ["content_block_stop", "message_delta", "message_stop"])
        for name, data in events:
            self.assertEqual(data["type"], name)
        streamed = "".join(data["delta"]["text"] for name, data in events
                           if name == "content_block_delta")
        self.assertEqual(streamed, text)
        error = self.post("/v1/messages", {**ask, "max_tokens": "x"}, 400)
        self.assertEqual((error["type"], error["error"]["type"]), ("error", "invalid_request_error"))
        self.assertEqual(self.post("/v1/messages", {**ask, "model": "x"}, 404)["error"]["type"],
                         "not_found_error")

    def test_responses(self):
        ask = {"input": "What is tar?", "max_output_tokens": 12, "temperature": 0}
        whole = self.post("/v1/responses", ask)
        text = self.chat(max_tokens=12)["choices"][0]["message"]["content"]
        self.assertEqual(whole["object"], "response")
        self.assertEqual(whole["status"], "incomplete")
        self.assertEqual(whole["incomplete_details"], {"reason": "max_output_tokens"})
        self.assertEqual([item["type"] for item in whole["output"]], ["message"])
        self.assertEqual(whole["output"][0]["content"][0]["text"], text)
        self.assertEqual(whole["usage"]["output_tokens"], 12)
        again = self.post("/v1/responses", {**ask, "input": [
            {"role": "user", "content": "What is tar?"}, *whole["output"],
            {"role": "user", "content": "And zip?"}]})
        self.assertEqual(again["object"], "response")
        events = named_events(self.server, "/v1/responses", ask)
        names = [name for name, _ in events]
        self.assertEqual(names[:4], ["response.created", "response.in_progress",
                                     "response.output_item.added", "response.content_part.added"])
        self.assertEqual(names[-4:], ["response.output_text.done", "response.content_part.done",
                                      "response.output_item.done", "response.incomplete"])
        self.assertEqual([data["sequence_number"] for _, data in events], list(range(len(events))))
        self.assertEqual("".join(data["delta"] for name, data in events
                                 if name == "response.output_text.delta"), text)
        self.assertEqual(events[-1][1]["response"]["output"][0]["content"],
                         whole["output"][0]["content"])
        self.post("/v1/responses", {**ask, "store": True}, 400)


class Tools(unittest.TestCase):
    """Calls and thoughts: the model is given the beginning of its answer by the template."""

    def serve(self, opening):
        template = ("{% for m in messages %}{{ m.content }}{% endfor %}" + opening)
        return ServerProcess(ATOM, MODEL, "--dtype", "float32", "--max-model-len", 512,
                             "--chat-template", template, "--tool-call-parser", "hermes",
                             "--reasoning-parser", "qwen3")

    def test_thoughts_are_blocks_of_their_own(self):
        with self.serve("<think>\n") as server:
            _, _, whole = server.post("/v1/messages", {
                "max_tokens": 12, "temperature": 0, "messages": ASK})
            self.assertEqual([block["type"] for block in whole["content"]][:1], ["thinking"], whole)
            _, _, whole = server.post("/v1/responses", {
                "max_output_tokens": 12, "temperature": 0, "input": "x"})
            self.assertEqual(whole["output"][0]["type"], "reasoning")
            self.assertEqual(whole["usage"]["output_tokens_details"]["reasoning_tokens"], 12)
            _, _, chat = server.post("/v1/chat/completions", {
                "max_tokens": 12, "temperature": 0, "messages": ASK})
            self.assertEqual(chat["usage"]["completion_tokens_details"]["reasoning_tokens"], 12)


    def test_thoughts_end_when_their_budget_is_used_up(self):
        with self.serve("<think>\n") as server:
            ask = {"max_tokens": 24, "temperature": 0, "messages": ASK}
            free = self.message(server, ask)
            self.assertFalse(free["content"], free)
            for name in ("max_thinking_tokens", "thinking_token_budget"):
                short = self.message(server, {**ask, name: 5})
                self.assertTrue(free["reasoning"].startswith(short["reasoning"].rstrip()), short)
                self.assertLess(len(short["reasoning"]), len(free["reasoning"]))
                self.assertTrue(short["content"], short)
            self.assertEqual(self.message(server, {**ask, "max_thinking_tokens": 0})["reasoning"],
                             None)
            self.assertEqual(self.message(server, {**ask, "thinking_token_budget": -1}), free)
            streamed = server.events("/v1/chat/completions", {**ask, "max_thinking_tokens": 5})
            parts = [event["choices"][0]["delta"] for event in streamed if event["choices"]]
            self.assertEqual("".join(part.get("content") or "" for part in parts),
                             short["content"])
            _, _, whole = server.post("/v1/messages", {
                **ask, "thinking": {"type": "enabled", "budget_tokens": 5}})
            self.assertEqual([block["type"] for block in whole["content"]], ["thinking", "text"])
            self.assertEqual(whole["content"][1]["text"], short["content"])

    def message(self, server, ask):
        status, _, answer = server.post("/v1/chat/completions", ask)
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]["message"]

    def test_without_known_thoughts_a_budget_is_refused(self):
        with ServerProcess(ATOM, MODEL) as server:
            status, _, answer = server.post("/v1/chat/completions", {
                "messages": ASK, "max_thinking_tokens": 5})
            self.assertEqual((status, answer["error"]["param"]), (400, "max_thinking_tokens"))
            # Anthropic's clients send one to every model.
            status, _, answer = server.post("/v1/messages", {
                "messages": ASK, "max_tokens": 4,
                "thinking": {"type": "enabled", "budget_tokens": 1024}})
            self.assertEqual(status, 200, answer)


class StoredResponses(unittest.TestCase):
    def test_a_conversation_goes_on_by_its_id(self):
        flags = ["--dtype", "float32", "--max-stored-responses", 1, "--max-model-len", 512]
        with ServerProcess(ATOM, MODEL, *flags, "--api-key", "one", "--api-key", "two") as server:
            def ask(key="one", status=200, **fields):
                got, _, answer = server.post(
                    "/v1/responses", {"max_output_tokens": 8, "temperature": 0, **fields},
                    {"Authorization": f"Bearer {key}"})
                self.assertEqual(got, status, answer)
                return answer

            first = ask(input="What is tar?", instructions="Be brief.")
            self.assertTrue(first["store"])
            second = ask(input="And zip?", previous_response_id=first["id"])
            self.assertEqual(second["previous_response_id"], first["id"])
            whole = ask(input=[{"role": "user", "content": "What is tar?"}, *first["output"],
                               {"role": "user", "content": "And zip?"}], store=False)
            self.assertEqual(second["usage"]["input_tokens"], whole["usage"]["input_tokens"])
            self.assertEqual(second["output"][0]["content"], whole["output"][0]["content"])
            third = ask(input="And gzip?", previous_response_id=second["id"])
            self.assertGreater(third["usage"]["input_tokens"], second["usage"]["input_tokens"])
            # Not kept, another key's, and unknown.
            for key, id in (("one", whole["id"]), ("two", first["id"]), ("one", "resp_x")):
                error = ask(key, 404, input="x", previous_response_id=id)["error"]
                self.assertEqual((error["param"], error["code"]),
                                 ("previous_response_id", "previous_response_not_found"))

    def test_streamed_answers_are_kept(self):
        with ServerProcess(ATOM, MODEL, "--max-stored-responses", 1) as server:
            ask = {"max_output_tokens": 8, "temperature": 0}
            events = named_events(server, "/v1/responses", {**ask, "input": "tar"})
            id = events[-1][1]["response"]["id"]
            status, _, answer = server.post(
                "/v1/responses", {**ask, "input": "zip", "previous_response_id": id})
            self.assertEqual(status, 200, answer)

    def test_the_store_is_bounded(self):
        flags = ["--max-stored-responses", 1, "--max-model-len", 2048]
        with ServerProcess(ATOM, MODEL, *flags) as server:
            text = "tar " * 1500
            ids = []
            for _ in range(220):
                status, _, answer = server.post(
                    "/v1/responses", {"input": text, "max_output_tokens": 1})
                self.assertEqual(status, 200, answer)
                ids.append(answer["id"])
            follow = {"input": "x", "max_output_tokens": 1}
            for id, status in ((ids[0], 404), (ids[-1], 200)):
                got, _, answer = server.post(
                    "/v1/responses", {**follow, "previous_response_id": id})
                self.assertEqual(got, status, answer)


class Strict(unittest.TestCase):
    def test_strict_fields_refuses_unknown_ones(self):
        with ServerProcess(ATOM, MODEL, "--strict-fields", "--served_model_name", "a", "b") as server:
            status, _, answer = server.post("/v1/completions", {"prompt": "x", "surprise": 1})
            self.assertEqual((status, answer["error"]["code"]), (400, "unknown_field"))
            _, _, models = server.request("GET", "/v1/models")
            self.assertEqual([model["id"] for model in models["data"]], ["a", "b"])

    def test_without_a_tokenizer(self):
        with ServerProcess(ATOM, MODEL, "--skip-tokenizer-init") as server:
            status, _, answer = server.post("/v1/completions", {
                "prompt": [5, 6, 7], "max_tokens": 3, "logprobs": 2, "prompt_logprobs": 1,
                "return_token_ids": True, "temperature": 0, "ignore_eos": True})
            self.assertEqual(status, 200, answer)
            choice = answer["choices"][0]
            self.assertEqual(choice["text"], "")
            self.assertEqual(choice["logprobs"]["tokens"],
                             [f"token_id:{id}" for id in choice["token_ids"]])
            self.assertIsNone(next(iter(choice["prompt_logprobs"][1].values()))["decoded_token"])


class CommandLine(unittest.TestCase):
    """What is known from the command line is said before the weights are loaded."""

    def expect_usage_error(self, *flags):
        result = subprocess.run([ATOM, "serve", str(MODEL), *flags], capture_output=True, text=True,
                                timeout=120, check=False)
        self.assertNotEqual(result.returncode, 0)
        self.assertNotIn("loaded", result.stderr)
        return result.stderr

    def test_mistakes_are_found_before_loading(self):
        self.assertIn("tool call parser", self.expect_usage_error("--tool-call-parser", "foo"))
        self.assertIn("reasoning parser", self.expect_usage_error("--reasoning-parser", "foo"))
        self.assertIn("/nonexistent/foo.jinja", self.expect_usage_error(
            "--chat-template", "/nonexistent/foo.jinja"))
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.assertIn("Address already in use", self.expect_usage_error(
                "--port", str(taken.getsockname()[1])))

    def test_options_of_other_servers(self):
        self.assertIn("not in this version", self.expect_usage_error("--hf-overrides", "{}"))
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
            config.write("served-model-name: [x, y]\nenforce-eager: true\nmax-model-len: 128\n")
            config.flush()
            with ServerProcess(ATOM, MODEL, "--config", config.name, "--trust-remote-code",
                               "--enable-auto-tool-choice", "--swap-space", "4",
                               "--generation-config", "vllm", "--override-generation-config",
                               '{"temperature": 0}') as server:
                _, _, models = server.request("GET", "/v1/models")
                self.assertEqual([model["id"] for model in models["data"]], ["x", "y"])
                self.assertEqual(models["data"][0]["max_model_len"], 128)
                self.assertIn("--trust-remote-code has no effect", server.output())
                body = {"prompt": "tar", "max_tokens": 20}
                texts = {server.post("/v1/completions", body)[2]["choices"][0]["text"]
                         for _ in range(3)}
                self.assertEqual(len(texts), 1)

    def test_variables_of_other_systems_are_told_of(self):
        variables = {"ATOM_ENFORCE_EAGER": "1", "VLLM_QSA_DECODE_ATTN_BACKEND": "triton"}
        with ServerProcess(ATOM, MODEL, "--load-format", "dummy", "--long-prefill-token-threshold",
                           16, env=variables) as server:
            self.assertIn("ATOM_ENFORCE_EAGER is set: the same as --enforce-eager", server.output())
            self.assertIn("VLLM_QSA_DECODE_ATTN_BACKEND has no effect", server.output())
            self.assertEqual(server.post("/v1/completions", {"prompt": "tar " * 60})[0], 200)
        self.assertIn("expected one of auto|safetensors|hf|dummy",
                      self.expect_usage_error("--load-format", "gguf"))
        self.assertIn("--long-prefill-token-threshold 16 needs prompts that are split",
                      self.expect_usage_error("--long-prefill-token-threshold", "16",
                                              "--scheduling-policy", "prefill-first"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
