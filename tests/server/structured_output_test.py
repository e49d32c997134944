#!/usr/bin/env python3
"""Answers that have to follow a schema, an expression or a grammar, and tool calls that have to
come: whatever the demo model draws at a temperature of 1.5, every answer is checked.

usage: tests/server/structured_output_test.py ATOM SOURCE_FOLDER [--large] [unittest arguments]

--large: every case with five seeds, in place of a part of them with one.
"""
import concurrent.futures
import itertools
import json
import pathlib
import re
import sys
import unittest

import answer_cases
from answer_checks import follows
from server_process import ServerProcess

LARGE = "--large" in sys.argv
if LARGE:
    sys.argv.remove("--large")
ATOM = sys.argv[1]
MODEL = pathlib.Path(sys.argv[2]) / "models" / "tldr-8m"
SEEDS = range(5) if LARGE else range(1)
AT_ONCE = 32
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 9},
                                     "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"]}}}
PING = {"type": "function", "function": {"name": "ping", "parameters": {
    "type": "object", "properties": {"up": {"type": "boolean"}}, "required": ["up"]}}}
ASK = [{"role": "user", "content": "What is tar?"}]


def some(cases, share):
    """All in a large run, else every so many."""
    cases = list(cases)
    return cases if LARGE else cases[::share]


def matched(text, opening, closing):
    """Whether text is ((...(.)...))."""
    depth = text.count(opening)
    return text == opening * depth + "." + closing * depth


class Case(unittest.TestCase):
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess(ATOM, MODEL, "--dtype", "float", "--max-model-len", 1024,
                                   "--max-num-seqs", AT_ONCE, *cls.flags)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def post(self, path, body, status=200):
        got, _, answer = self.server.post(path, body)
        self.assertEqual(got, status, (answer, body))
        return answer

    def chat(self, **body):
        body = {"messages": ASK, "temperature": 1.5, "max_tokens": 700, **body}
        return self.post("/v1/chat/completions", body)["choices"][0]

    def streamed(self, **body):
        body = {"messages": ASK, "temperature": 1.5, "max_tokens": 700, **body}
        content, calls, reason = "", {}, None
        for event in self.server.events("/v1/chat/completions", body):
            self.assertIn("choices", event, event)
            for choice in event["choices"]:
                delta = choice["delta"]
                content += delta.get("content") or ""
                for call in delta.get("tool_calls") or []:
                    known = calls.setdefault(call["index"], {"name": "", "arguments": ""})
                    for name in known:
                        known[name] += call["function"].get(name) or ""
                reason = choice["finish_reason"] or reason
        return content, list(calls.values()), reason

    def answer(self, index, **body):
        """The content, by turns from a stream."""
        if index % 2:
            content, _, reason = self.streamed(**body)
        else:
            choice = self.chat(**body)
            content, reason = choice["message"]["content"], choice["finish_reason"]
        self.assertEqual(reason, "stop", (body, content))
        return content

    def check_all(self, requests, check):
        """requests: (case, fields of the body); check(case, content) for each answer."""
        def run(job):
            index, ((case, body), seed) = job
            content = self.answer(index, seed=seed, **body)
            self.assertTrue(check(case, content), (case, content))
        jobs = enumerate(itertools.product(requests, SEEDS))
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            return len(list(pool.map(run, jobs)))


class Content(Case):
    def test_schemas(self):
        requests = [(schema, {"response_format": {
            "type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}})
            for schema in some(answer_cases.schemas(), 5)]
        def check(schema, content):
            return follows(json.loads(content), schema)
        count = self.check_all(requests, check)
        print(f"{count} answers followed {len(requests)} schemas")

    def test_other_names_of_schemas(self):
        schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0,
                                                         "maximum": 99}}, "required": ["a"]}
        tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema}}
        requests = [(schema, body) for body in (
            {"guided_json": schema}, {"guided_json": json.dumps(schema)}, {"json_schema": schema},
            {"structured_outputs": {"json": schema}}, {"response_format": tag},
            {"structured_outputs": {"structural_tag": json.dumps(tag)}}, {"structural_tag": tag})]
        self.check_all(requests, lambda case, content: follows(json.loads(content), case))

    def test_json_objects(self):
        bodies = [{"response_format": {"type": "json_object"}},
                  {"structured_outputs": {"json_object": True}}]
        # An object may be as long as the model likes: what is complete is one.
        for body, seed in itertools.product(bodies, SEEDS):
            choice = self.chat(seed=seed, **body)
            if choice["finish_reason"] == "stop":
                self.assertIsInstance(json.loads(choice["message"]["content"]), dict)
            self.assertTrue(choice["message"]["content"].startswith("{"))

    def test_regexes(self):
        names = itertools.cycle(("guided_regex", "regex", None))
        requests = [(pattern, {"structured_outputs": {"regex": pattern}} if name is None
                     else {name: pattern})
                    for pattern, name in zip(some(answer_cases.REGEXES, 3), names)]
        def check(pattern, content):
            return re.fullmatch(pattern, content) is not None
        count = self.check_all(requests, check)
        print(f"{count} answers matched {len(requests)} expressions")

    def test_grammars(self):
        names = itertools.cycle(("guided_grammar", "ebnf", "grammar", None))
        requests = [(pattern, {"structured_outputs": {"grammar": grammar}} if name is None
                     else {name: grammar})
                    for (grammar, pattern), name in zip(some(answer_cases.GRAMMARS, 3), names)]
        def check(pattern, content):
            return re.fullmatch(pattern, content, re.DOTALL) is not None
        count = self.check_all(requests, check)
        print(f"{count} answers followed {len(requests)} grammars")

    def test_nested_grammars(self):
        for seed in range(4):
            choice = self.chat(ebnf=answer_cases.BALANCED, seed=seed, max_tokens=64)
            if choice["finish_reason"] == "stop":
                self.assertTrue(matched(choice["message"]["content"], "(", ")"))
            choice = self.chat(ebnf=answer_cases.SUM, seed=seed, max_tokens=200)
            if choice["finish_reason"] == "stop":
                term, value = choice["message"]["content"].split("=")
                self.assertRegex(value, "^[0-9]{1,2}$")
                self.assertEqual(term.count("("), term.count(")"))
                eval(term, {})  # digits, + and parentheses that match

    def test_choices(self):
        choices = ["left", "right", "straight on", "\u00e4 \"quoted\""]
        requests = [(choices, {"guided_choice": choices}),
                    (choices, {"structured_outputs": {"choice": choices}}),
                    (["only"], {"guided_choice": ["only"]})] * 4
        self.check_all(requests, lambda case, content: content in case)

    def test_completions(self):
        for seed in range(3):
            body = {"prompt": "tar", "guided_regex": "[a-c]{4}", "temperature": 1.5, "seed": seed,
                    "max_tokens": 20}
            choice = self.post("/v1/completions", body)["choices"][0]
            self.assertRegex(choice["text"], "^[a-c]{4}$")
            self.assertEqual(choice["finish_reason"], "stop")

    def test_responses_and_messages(self):
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
        answer = self.post("/v1/responses", {
            "input": "hi", "text": {"format": {"type": "json_schema", "name": "x",
                                               "schema": schema}}})
        text = answer["output"][-1]["content"][0]["text"]
        self.assertTrue(follows(json.loads(text), schema))
        self.assertEqual(answer["text"]["format"]["type"], "json_schema")
        for body in ({"output_format": {"type": "json_schema", "schema": schema}},
                     {"output_config": {"format": {"type": "json_schema", "schema": schema}}}):
            answer = self.post("/v1/messages", {"messages": ASK, "max_tokens": 200, **body})
            self.assertTrue(follows(json.loads(answer["content"][0]["text"]), schema))

    def test_with_other_parameters(self):
        pattern = "[a-f]{3} [a-f]{3}"
        body = {"messages": ASK, "temperature": 1.5, "guided_regex": pattern, "max_tokens": 30}
        answer = self.post("/v1/chat/completions", {**body, "n": 8, "seed": 3})
        contents = [choice["message"]["content"] for choice in answer["choices"]]
        for content in contents:
            self.assertRegex(content, f"^{pattern}$")
        self.assertGreater(len(set(contents)), 1)
        again = self.post("/v1/chat/completions", {**body, "n": 8, "seed": 3})
        self.assertEqual(contents, [choice["message"]["content"] for choice in again["choices"]])
        choice = self.chat(guided_regex=pattern, logprobs=True, top_logprobs=3)
        tokens = [one["token"] for one in choice["logprobs"]["content"]]
        self.assertEqual("".join(tokens[:-1]), choice["message"]["content"])  # and the end token
        choice = self.chat(guided_regex="a{3}b{3}", stop=["ab"])
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), ("aa", "stop"))
        # Where only the end may come, min_tokens cannot keep it away.
        choice = self.chat(guided_choice=["left"], min_tokens=20)
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), ("left", "stop"))
        choice = self.chat(guided_choice=["left"], ignore_eos=True, max_tokens=20)
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]),
                         ("left", "length"))
        choice = self.chat(guided_regex="[ab]{9}", presence_penalty=2, frequency_penalty=-2,
                           logit_bias={"300": 100}, top_k=3, min_p=0.1)
        self.assertRegex(choice["message"]["content"], "^[ab]{9}$")
        choice = self.chat(guided_regex="[ab]{9}", temperature=0)
        self.assertRegex(choice["message"]["content"], "^[ab]{9}$")

    def test_a_grammar_without_a_way_on_ends_its_own_request(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            others = [pool.submit(self.answer, i, guided_regex="[a-z]{40}", seed=i)
                      for i in range(6)]
            body = {"messages": ASK, "guided_choice": ["xyz"], "allowed_token_ids": [300]}
            status, _, answer = self.server.post("/v1/chat/completions", body)
            self.assertEqual(status, 500, answer)
            for other in others:
                self.assertRegex(other.result(), "^[a-z]{40}$")

    def test_a_grammar_that_takes_too_long_ends_its_own_request(self):
        ambiguous = 'root ::= s\ns ::= s s | [a-z] | [a-z] s | ""'
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            others = [pool.submit(self.answer, i, guided_regex="[a-z]{40}", seed=i)
                      for i in range(6)]
            body = {"messages": ASK, "ebnf": ambiguous, "ignore_eos": True, "max_tokens": 900,
                    "bad_words": ["<|im_end|>"], "temperature": 1.5, "seed": 1}
            status, _, answer = self.server.post("/v1/chat/completions", body)
            self.assertEqual(status, 500, answer)
            self.assertIn("too many ways to go on", answer["error"]["message"])
            for other in others:
                self.assertRegex(other.result(), "^[a-z]{40}$")

    def test_refused(self):
        def json_schema(schema):
            return {"response_format": {"type": "json_schema", "json_schema": {
                "name": "x", "schema": schema}}}
        many = {"type": "object", "properties": {"x": {"enum": list(range(5000))}}}
        loop = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"},
                                               "b": {"$ref": "#/$defs/a"}}}
        cases = [
            (json_schema({"properties": {"a": {"not": {}}}}),
             "response_format.json_schema.schema.properties.a.not"),
            (json_schema({"items": {"uniqueItems": True}}),
             "response_format.json_schema.schema.items.uniqueItems"),
            (json_schema(many), "response_format.json_schema.schema.properties.x.enum"),
            (json_schema(loop), "response_format.json_schema.schema.$ref"),
            ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
            ({"response_format": {"type": "xml"}}, "response_format.type"),
            ({"guided_json": "{"}, "guided_json"),
            ({"guided_regex": "((a{1,1000}){1,1000})"}, "guided_regex"),
            ({"guided_regex": "(a"}, "guided_regex"),
            ({"guided_regex": "a(?=b)"}, "guided_regex"),
            ({"guided_grammar": "root ::= nothing"}, "guided_grammar"),
            ({"structured_outputs": {"grammar": "root := 1"}}, "structured_outputs.grammar"),
            ({"structured_outputs": {}}, "structured_outputs"),
            ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
            ({"structured_outputs": {"choice": ["a", ""]}}, "structured_outputs.choice[1]"),
            ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_regex"),
            ({"structural_tag": {"format": {"type": "tag"}}}, "the answer's form"),
            ({"tool_choice": "required"}, "tool_choice"),
            ({"tool_choice": "required", "tools": [PING]}, "tool_choice"),
        ]
        for body, param in cases:
            for stream in (False, True):
                answer = self.post("/v1/chat/completions",
                                   {"messages": ASK, "stream": stream, **body}, 400)
                self.assertEqual(answer["error"]["param"] or "", param, answer)
                self.assertTrue(answer["error"]["message"])


class Calls(Case):
    flags = ("--tool-call-parser", "hermes", "--reasoning-parser", "deepseek_r1")

    def check_call(self, call):
        tools = {tool["function"]["name"]: tool["function"]["parameters"]
                 for tool in (WEATHER, PING)}
        self.assertTrue(follows(json.loads(call["arguments"]), tools[call["name"]]), call)

    def calls(self, seed, **body):
        """By turns streamed and not."""
        body = {"tools": [WEATHER, PING], "seed": seed, **body}
        if seed % 2:
            _, calls, reason = self.streamed(**body)
        else:
            choice = self.chat(**body)
            calls = [call["function"] for call in choice["message"].get("tool_calls") or []]
            reason = choice["finish_reason"]
        for call in calls if reason != "length" else calls[:-1]:
            self.check_call(call)
        return calls, reason

    def run_all(self, count, **body):
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda seed: self.calls(seed, **body), range(count)))

    # The model never learned to end what it thinks: a budget does it.
    THINK = {"max_thinking_tokens": 6}

    def test_required(self):
        for calls, reason in self.run_all(8 * len(SEEDS), tool_choice="required",
                                          parallel_tool_calls=False, **self.THINK):
            self.assertEqual((len(calls), reason), (1, "tool_calls"))

    def test_named(self):
        named = {"type": "function", "function": {"name": "ping"}}
        for calls, reason in self.run_all(6 * len(SEEDS), tool_choice=named,
                                          parallel_tool_calls=False, **self.THINK):
            self.assertEqual([call["name"] for call in calls], ["ping"])
            self.assertEqual(reason, "tool_calls")
        body = {"messages": ASK, "tools": [PING], "tool_choice": {
            "type": "function", "function": {"name": "pong"}}}
        answer = self.post("/v1/chat/completions", body, 400)
        self.assertIn("pong", answer["error"]["message"])

    def test_allowed_tools(self):
        def choice(mode, *names):
            return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [
                {"type": "function", "function": {"name": name}} for name in names]}}
        for calls, reason in self.run_all(6 * len(SEEDS), tool_choice=choice("required", "ping"),
                                          parallel_tool_calls=False, **self.THINK):
            self.assertEqual([call["name"] for call in calls], ["ping"])
            self.assertEqual(reason, "tool_calls")
        # The model is made to begin a call, of which the grammar leaves one tool alone.
        marks = {"logit_bias": {str(self.first_token("<tool_call>")): 100}}
        for calls, _ in self.run_all(6 * len(SEEDS), tool_choice=choice("auto", "ping"),
                                     max_tokens=80, **marks, **self.THINK):
            self.assertLessEqual({call["name"] for call in calls}, {"ping"})
        answer = self.post("/v1/chat/completions", {
            "messages": ASK, "tools": [PING], "tool_choice": choice("auto", "ping", "pong")}, 400)
        self.assertIn("pong", answer["error"]["message"])
        self.post("/v1/chat/completions",
                  {"messages": ASK, "tool_choice": choice("auto", "ping")}, 400)

    def first_token(self, text):
        return self.post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"][0]

    def test_auto_with_strict_tools(self):
        strict = json.loads(json.dumps([WEATHER, PING]))
        for tool in strict:
            tool["function"]["strict"] = True
        self.run_all(4 * len(SEEDS), tools=strict, max_tokens=60, **self.THINK)

    def test_content_or_calls(self):
        for seed in range(6):
            choice = self.chat(tools=[PING], seed=seed, **self.THINK, response_format={
                "type": "json_schema", "json_schema": {"schema": {"type": "boolean"}}})
            message = choice["message"]
            if message.get("tool_calls"):  # whose arguments may be as long as the model likes
                self.assertIn(choice["finish_reason"], ("tool_calls", "length"))
            else:
                self.assertIn(message["content"], ("true", "false"))

    def test_reasoning_comes_first(self):
        for seed in range(4):
            choice = self.chat(guided_choice=["left", "right"], seed=seed, **self.THINK)
            self.assertIn(choice["message"]["content"], ("left", "right"))
            self.assertTrue(choice["message"]["reasoning_content"])

    def test_other_apis(self):
        tool = {"name": "ping", "input_schema": PING["function"]["parameters"]}
        for choice in ({"type": "any"}, {"type": "tool", "name": "ping"}):
            answer = self.post("/v1/messages", {
                "messages": ASK, "max_tokens": 300, "tools": [tool], "thinking": {
                    "type": "enabled", "budget_tokens": 5},
                "tool_choice": {**choice, "disable_parallel_tool_use": True}})
            self.assertEqual(answer["stop_reason"], "tool_use")
            self.assertIsInstance(answer["content"][-1]["input"]["up"], bool)


class Drafts(Content):
    """The same with drafts, whose masks suppose those before."""
    flags = ("--method", "ngram", "--num-speculative-tokens", 4)

    test_refused = test_completions = test_responses_and_messages = None
    test_other_names_of_schemas = test_nested_grammars = None


class Ranks(Content):
    """The same where two ranks share each layer."""
    flags = ("-tp", 2)

    test_refused = test_completions = test_responses_and_messages = test_json_objects = None
    test_other_names_of_schemas = test_nested_grammars = test_schemas = test_grammars = None


class Stages(Ranks):
    """The same where each of two ranks has half of the layers."""
    flags = ("-pp", 2)


class Copies(Ranks):
    """The same where requests go to two copies, each of which compiles for itself."""
    flags = ("-dp", 2)


if __name__ == "__main__":
    del sys.argv[1:3]
    unittest.main()
