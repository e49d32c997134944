#!/usr/bin/env python3
"""The official openai package for Python, as it is, against the server.

usage: tests/server/openai_python_test.py ATOM SOURCE_FOLDER [unittest arguments]
"""
import asyncio
import json
import math
import pathlib
import sys
import unittest

import openai

from server_process import ServerProcess

ATOM = sys.argv[1]
MODEL = pathlib.Path(sys.argv[2]) / "models" / "tldr-8m"
CASES = json.loads((MODEL / "golden_text.json").read_text())["float32"]
TAR = CASES[0]
SHORT = next(case for case in CASES if len(case["output_ids"]) < 100)
KEY = "a-key-of-the-test"
NAME = "demo/model"
END_OF_TURN_ID = "2"
TOOL = {"type": "function", "function": {
    "name": "lookup", "description": "Looks a command up.",
    "parameters": {"type": "object", "properties": {"name": {"type": "string"}},
                   "required": ["name"]}}}


def question(text):
    return [{"role": "user", "content": text}]


class OpenAIPackage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess(ATOM, MODEL, "--dtype", "float32", "--served-model-name", NAME,
                                   "--served-model-name", "alias", "--max-model-len", 512,
                                   "--tool-call-parser", "hermes",
                                   env={"ATOM_API_KEY": KEY})
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key=KEY, max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0

    def chat(self, **arguments):
        arguments = {"model": NAME, "messages": question("tar"), "temperature": 0,
                     "max_tokens": 160, **arguments}
        return self.client.chat.completions.create(**arguments)

    def test_models(self):
        models = self.client.models.list().data
        self.assertEqual([model.id for model in models], [NAME, "alias"])
        self.assertEqual(models[0].max_model_len, 512)
        self.assertEqual(self.client.models.retrieve(NAME).id, NAME)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("another")

    def test_chat(self):
        answer = self.chat()
        self.assertEqual(answer.choices[0].message.content, TAR["text"])
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.model, NAME)
        self.assertEqual(answer.usage.prompt_tokens, len(TAR["prompt_ids"]))
        self.assertEqual(answer.usage.completion_tokens, len(TAR["output_ids"]))
        self.assertEqual(answer.usage.total_tokens,
                         len(TAR["prompt_ids"]) + len(TAR["output_ids"]))

    def test_content_parts_and_roles(self):
        answer = self.chat(messages=[{"role": "user",
                                      "content": [{"type": "text", "text": "tar"}]}])
        self.assertEqual(answer.choices[0].message.content, TAR["text"])
        answer = self.chat(max_tokens=4, messages=[
            {"role": "developer", "content": "Be brief."}, *question("tar"),
            {"role": "assistant", "content": "It archives."}, *question("chmod")])
        self.assertEqual(answer.usage.completion_tokens, 4)

    def test_chat_stream(self):
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, TAR["text"])
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertGreater(len(chunks), 10)
        reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
        self.assertEqual([reason for reason in reasons if reason],
                         ["length" if len(TAR["output_ids"]) == 160 else "stop"])
        self.assertEqual(chunks[-1].usage.completion_tokens, len(TAR["output_ids"]))
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)

    def test_stream_helper(self):
        with self.client.chat.completions.stream(
                model=NAME, messages=question(SHORT["question"]), temperature=0,
                max_tokens=160) as stream:
            for _ in stream:
                pass
            self.assertEqual(stream.get_final_completion().choices[0].message.content,
                             SHORT["text"])

    def test_several_answers(self):
        answer = self.chat(n=3, temperature=1, seed=7, max_tokens=20)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])
        again = self.chat(n=3, temperature=1, seed=7, max_tokens=20)
        self.assertEqual([choice.message.content for choice in answer.choices],
                         [choice.message.content for choice in again.choices])
        texts = ["", "", ""]
        for chunk in self.chat(n=3, temperature=1, seed=7, max_tokens=20, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        self.assertEqual(texts, [choice.message.content for choice in answer.choices])

    def test_chat_logprobs(self):
        answer = self.chat(logprobs=True, top_logprobs=3, max_tokens=10)
        content = answer.choices[0].logprobs.content
        self.assertEqual(len(content), 10)
        for token in content:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertLessEqual(token.logprob, 0)
            self.assertAlmostEqual(token.top_logprobs[0].logprob, token.logprob)  # greedy
            self.assertLessEqual(sum(math.exp(top.logprob) for top in token.top_logprobs), 1.001)
        joined = b"".join(bytes(token.bytes) for token in content)
        self.assertEqual(joined.decode(), answer.choices[0].message.content)
        streamed = []
        for chunk in self.chat(logprobs=True, top_logprobs=3, max_tokens=10, stream=True):
            if chunk.choices[0].logprobs:
                streamed += chunk.choices[0].logprobs.content
        self.assertEqual(streamed, content)

    def test_completion(self):
        answer = self.client.completions.create(model="alias", prompt=TAR["prompt_ids"],
                                                temperature=0, max_tokens=160)
        self.assertEqual(answer.choices[0].text, TAR["text"])
        self.assertEqual(answer.model, "alias")

    def test_completion_prompts_of_all_kinds(self):
        ids = [case["prompt_ids"] for case in CASES[:3]]
        answer = self.client.completions.create(model=NAME, prompt=ids, temperature=0,
                                                max_tokens=160)
        self.assertEqual([choice.text for choice in answer.choices],
                         [case["text"] for case in CASES[:3]])
        answer = self.client.completions.create(model=NAME, prompt=["tar", "git"], n=2,
                                                temperature=0, max_tokens=3, echo=True)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2, 3])
        self.assertEqual([choice.text[:3] for choice in answer.choices],
                         ["tar", "tar", "git", "git"])

    def test_completion_logprobs_and_echo(self):
        answer = self.client.completions.create(model=NAME, prompt="Archiving utility",
                                                temperature=0, max_tokens=1, logprobs=2, echo=True)
        choice = answer.choices[0]
        logprobs = choice.logprobs
        self.assertEqual("".join(logprobs.tokens), choice.text)
        self.assertEqual(len(logprobs.tokens), answer.usage.total_tokens)
        self.assertIsNone(logprobs.token_logprobs[0])
        for offset, token in zip(logprobs.text_offset, logprobs.tokens):
            self.assertEqual(choice.text[offset:offset + len(token)], token)
        score = self.client.completions.create(model=NAME, prompt=choice.text, temperature=0,
                                               max_tokens=0, logprobs=2, echo=True)
        self.assertEqual(score.choices[0].text, choice.text)
        self.assertEqual(score.usage.completion_tokens, 0)
        self.assertEqual(len(score.choices[0].logprobs.tokens), score.usage.prompt_tokens)

    def test_completion_stream(self):
        text = ""
        for chunk in self.client.completions.create(model=NAME, prompt=TAR["prompt_ids"],
                                                    temperature=0, max_tokens=160, stream=True):
            text += chunk.choices[0].text
        self.assertEqual(text, TAR["text"])

    def test_best_of(self):
        answer = self.client.completions.create(model=NAME, prompt="tar", best_of=4, n=2, seed=1,
                                                max_tokens=8, logprobs=0)
        self.assertEqual(len(answer.choices), 2)
        means = [sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs)
                 for choice in answer.choices]
        self.assertGreaterEqual(means[0], means[1])
        with self.assertRaisesRegex(openai.BadRequestError, "best_of"):
            self.client.completions.create(model=NAME, prompt="tar", best_of=4, stream=True)

    def test_stop(self):
        whole = TAR["text"]
        stop = whole[20:24]
        answer = self.chat(stop=[stop])
        self.assertEqual(answer.choices[0].message.content, whole[:whole.index(stop)])
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.choices[0].stop_reason, stop)
        text = "".join(chunk.choices[0].delta.content or ""
                       for chunk in self.chat(stop=[stop], stream=True))
        self.assertEqual(text, whole[:whole.index(stop)])

    def test_vllm_extras(self):
        answer = self.chat(max_tokens=5, extra_body={
            "top_k": 1, "min_p": 0.1, "repetition_penalty": 1.1, "ignore_eos": True,
            "min_tokens": 5, "stop_token_ids": [3], "skip_special_tokens": True, "priority": 1,
            "return_token_ids": True, "cache_salt": "s", "prompt_logprobs": 1})
        self.assertEqual(answer.usage.completion_tokens, 5)
        self.assertEqual(len(answer.choices[0].token_ids), 5)
        self.assertEqual(answer.prompt_token_ids, TAR["prompt_ids"])
        self.assertEqual(len(answer.prompt_logprobs), len(TAR["prompt_ids"]))
        self.assertIsNone(answer.prompt_logprobs[0])

    def test_special_tokens(self):
        def contents(**extra):
            answers = [self.chat(max_tokens=3, logit_bias={END_OF_TURN_ID: 100}, tools=tools,
                                 extra_body={"ignore_eos": True, **extra})
                       for tools in ([TOOL], openai.NOT_GIVEN)]
            return [answer.choices[0].message.content or "" for answer in answers]

        self.assertEqual(contents(), ["", ""])
        self.assertEqual(contents(skip_special_tokens=False), ["<|im_end|>" * 3] * 2)

    def test_smallest_numbers(self):
        fields = ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty"]
        for value in ("1e-5", "1e-10", "1e-38", "1e-40", "1e-300", "5e-324"):
            for few in [[field] for field in fields] + [fields]:
                numbers = "".join(f'"{field}": {value}, ' for field in few)
                body = ('{%s "logit_bias": {"5": %s}, "seed": 1, "max_tokens": 3, "logprobs": 2, '
                        '"prompt": "tar", "n": 2}' % (numbers, value))
                status, _, answer = self.server.post("/v1/completions", body,
                                                     {"Authorization": "Bearer " + KEY})
                self.assertEqual(status, 200, (body, answer))
                for choice in answer["choices"]:
                    logprobs = choice["logprobs"]["token_logprobs"]
                    self.assertTrue(logprobs and all(map(math.isfinite, logprobs)), answer)

    def test_tools_are_taken(self):
        answer = self.chat(tools=[TOOL], tool_choice="auto", max_tokens=5)
        self.assertEqual(answer.usage.completion_tokens, 5)
        named = {"type": "function", "function": {"name": "lookup"}}
        for choice in ("required", named):
            answer = self.chat(tools=[TOOL], tool_choice=choice, max_tokens=400, temperature=1,
                               seed=1)
            self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
            for call in answer.choices[0].message.tool_calls:
                self.assertEqual(call.function.name, "lookup")
                self.assertIsInstance(json.loads(call.function.arguments)["name"], str)
        other = {"type": "function", "function": {"name": "other"}}
        with self.assertRaisesRegex(openai.BadRequestError, "tool_choice: 'other'"):
            self.chat(tools=[TOOL], tool_choice=other)

    def test_errors(self):
        cases = [
            (dict(model="nobody"), openai.NotFoundError, "model_not_found", "model", "demo/model"),
            (dict(temperature=-1), openai.BadRequestError, None, "temperature", "-1"),
            (dict(max_tokens=5000), openai.BadRequestError, "context_length_exceeded",
             "max_tokens", "512"),
            (dict(messages=question("tar " * 3000), max_tokens=None), openai.BadRequestError,
             "context_length_exceeded", "messages", "512"),
            (dict(messages=[]), openai.BadRequestError, None, "messages", ""),
            (dict(extra_body={"regex": "a("}), openai.BadRequestError, "invalid_value",
             "regex", "regex: "),
            (dict(response_format={"type": "json_schema", "json_schema": {
                "name": "x", "schema": {"not": {}}}}), openai.BadRequestError, "unsupported_field",
             "response_format.json_schema.schema.not", "not supported"),
            (dict(logit_bias={"999999": 1}), openai.BadRequestError, "invalid_value",
             "logit_bias.999999", "999999"),
        ]
        for arguments, kind, code, param, words in cases:
            with self.subTest(param=param, words=words), self.assertRaises(kind) as caught:
                self.chat(**arguments)
            body = caught.exception.body
            self.assertIn(words, body["message"])
            if code is not None:
                self.assertEqual(body["code"], code)
            if param is not None:
                self.assertIn(param, body["param"] or "")

    def test_second_turn_of_own_answers(self):
        ask = question(SHORT["question"])
        with self.client.chat.completions.stream(model=NAME, messages=ask, temperature=0,
                                                 max_tokens=160) as stream:
            streamed = stream.get_final_completion().choices[0].message
        plain = self.chat(messages=ask).choices[0].message
        for message in (streamed, streamed.model_dump(), plain):
            answer = self.chat(messages=[*ask, message, *question("zip")], max_tokens=4)
            self.assertEqual(answer.usage.completion_tokens, 4)

    def test_responses(self):
        ask = {"model": NAME, "input": SHORT["question"], "temperature": 0}
        answer = self.client.responses.create(**ask, max_output_tokens=160)
        self.assertEqual(answer.status, "completed")
        self.assertEqual(answer.output_text, SHORT["text"])
        with self.client.responses.stream(**ask, max_output_tokens=160) as stream:
            pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
            final = stream.get_final_response()
        self.assertEqual("".join(pieces), SHORT["text"])
        self.assertEqual(final.output_text, SHORT["text"])
        again = self.client.responses.create(
            model=NAME, max_output_tokens=4,
            input=[*question(SHORT["question"]), *answer.output, *question("zip")])
        self.assertEqual(again.usage.output_tokens, 4)

    def test_wrong_key(self):
        wrong = openai.OpenAI(base_url=self.server.url + "/v1", api_key="no", max_retries=0)
        with wrong, self.assertRaises(openai.AuthenticationError):
            wrong.models.list()
        status, headers, body = self.server.post("/v1/completions", {"prompt": "x"})
        self.assertEqual((status, body["error"]["code"]), (401, "invalid_api_key"))

    def test_many_at_once(self):
        async def ask(client, case):
            answer = await client.chat.completions.create(
                model=NAME, messages=question(case["question"]), temperature=0, max_tokens=160)
            self.assertEqual(answer.choices[0].message.content, case["text"])

        async def ask_all():
            async with openai.AsyncOpenAI(base_url=self.server.url + "/v1", api_key=KEY,
                                          max_retries=0) as client:
                await asyncio.gather(*(ask(client, case) for case in CASES * 4))

        asyncio.run(ask_all())

    def test_stream_left_early(self):
        for _ in range(20):
            stream = self.chat(stream=True, max_tokens=400, extra_body={"ignore_eos": True})
            next(iter(stream))
            stream.close()
        self.assertEqual(self.chat().choices[0].message.content, TAR["text"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
