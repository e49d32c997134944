"""What clients and newcomers met: each case gives whether a build serves them, and what was seen."""
import json
import re
import socket
import subprocess
import tempfile

from fault_build import ask, error_of

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "What is tar?"}]
TOOL = {"type": "function", "function": {"name": "ping", "parameters": {
    "type": "object", "properties": {"up": {"type": "boolean"}}, "required": ["up"]}}}
SCHEMA = {"type": "object", "properties": {"up": {"type": "boolean"}}, "required": ["up"]}
GENERAL = ("--max-model-len", 512, "--tool-call-parser", "hermes", "--reasoning-parser", "none")


def served(build, requests, *flags):
    """requests: name -> (path, body). Which of them get 200."""
    refused = []
    with build.serve(*GENERAL, *flags) as server:
        for name, (path, body) in requests.items():
            method = "GET" if body is None else "POST"
            status, _, answer = ask(server, path, body, method=method)
            if status != 200:
                refused.append(f"{name} {status}")
    text = f"{len(requests) - len(refused)} of {len(requests)}"
    return not refused, text + (": not " + ", ".join(refused) if refused else "")


def chats(bodies):
    return {name: (CHAT, {"messages": MESSAGES, "max_tokens": 40, **body})
            for name, body in bodies.items()}


def second_turns(build):
    """Answers sent back with the fields that clients add to them."""
    call = {"id": "c", "type": "function", "function": {"name": "ping", "arguments": "{}"}}
    turns = {
        "provider_specific_fields": {"content": "x", "provider_specific_fields": None},
        "parsed": {"content": "x", "parsed": None},
        "parsed_arguments": {"content": None, "tool_calls": [
            {**call, "function": {**call["function"], "parsed_arguments": {}}}]},
        "extra_content": {"content": None, "tool_calls": [{**call, "extra_content": {}}]},
        "reasoning_details": {"content": "x", "reasoning_details": []},
        "thinking_blocks": {"content": "x", "thinking_blocks": []},
        "id": {"content": "x", "id": "m"}, "images": {"content": "x", "images": []},
        "cache_control": {"content": [{"type": "text", "text": "x",
                                       "cache_control": {"type": "ephemeral"}}]},
    }
    return served(build, chats({
        name: {"messages": [*MESSAGES, {"role": "assistant", **turn},
                            *([{"role": "tool", "tool_call_id": "c", "content": "x"}]
                              if "tool_calls" in turn else []), *MESSAGES], "tools": [TOOL]}
        for name, turn in turns.items()}))


def hints(build):
    """Fields that say nothing about the answer."""
    return served(build, chats({
        "include_obfuscation": {"stream": True, "stream_options": {"include_obfuscation": False}},
        "repetition_detection": {"repetition_detection": None}, "moderation": {"moderation": {}},
        "prompt_cache_options": {"prompt_cache_options": {}}, "verbosity": {"verbosity": "low"},
        "store": {"store": True}, "service_tier": {"service_tier": "flex"},
        "prompt_cache_retention": {"prompt_cache_retention": "24h"}}))


def missing_template(build):
    """--chat-template with a file that is not there."""
    try:
        with build.serve("--chat-template", "/nonexistent/foo.jinja") as server:
            status, _, answer = ask(server, CHAT, {"messages": MESSAGES, "max_tokens": 1})
            return False, f"serves, and clients get {status}: {error_of(answer).get('message')}"
    except RuntimeError as error:
        return "/nonexistent/foo.jinja" in str(error), "is an error at the start"


def mistakes_before_loading(build):
    """Unknown parsers and a taken port: before the weights are loaded."""
    late = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for flags in (("--tool-call-parser", "foo"), ("--reasoning-parser", "foo"),
                      ("--port", port)):
            result = build.run("serve", build.checkpoint, *flags)
            if "loaded" in result.stderr or result.returncode == 0:
                late.append(flags[0])
    return not late, "after loading: " + ", ".join(late) if late else "all of them"


def limit_that_failed(build):
    """A KV cache of 1 KiB names the limit that failed."""
    result = build.run("plan", build.checkpoint, "--kv-cache-memory", "1KiB")
    return "--kv-cache-memory" in result.stderr, result.stderr.strip().split("\n")[-1][:160]


def text_offsets(build):
    """text_offset indexes text, with special tokens and with an emoji in the prompt."""
    wrong = []
    with build.serve(*GENERAL) as server:
        for prompt in ([0, 0, 0, 0, 0], "Complete this: I love coding \U0001F680"):
            choice = ask(server, COMPLETIONS, {
                "prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 10,
                "temperature": 0})[2]["choices"][0]
            offsets, tokens = choice["logprobs"]["text_offset"], choice["logprobs"]["tokens"]
            wrong += [offset for token, offset in zip(tokens, offsets)
                      if offset > len(choice["text"]) or not token.startswith("<|") and
                      "\ufffd" not in token and
                      choice["text"][offset:offset + len(token)] != token]
    return not wrong, f"wrong: {wrong[:8]}" if wrong else "all right"


def usage_in_every_event(build):
    """continuous_usage_stats without include_usage."""
    with build.serve(*GENERAL) as server:
        events = server.events(CHAT, {"messages": MESSAGES, "max_tokens": 4, "stream_options": {
            "include_usage": False, "continuous_usage_stats": True}})
    number = sum(1 for event in events if event.get("usage"))
    return number == 0, f"usage in {number} of {len(events)} events"


def named_fields(build):
    """Errors name the field that was sent."""
    cases = {"max_completion_tokens": (CHAT, {"messages": MESSAGES, "max_completion_tokens": 4096}),
             "logit_bias.9999": (CHAT, {"messages": MESSAGES, "logit_bias": {"9999": 1}}),
             "prompt[1]": (COMPLETIONS, {"prompt": [1, 999999]})}
    with build.serve(*GENERAL) as server:
        seen = {name: error_of(ask(server, path, body)[2]).get("param")
                for name, (path, body) in cases.items()}
    return (all(name == param for name, param in seen.items()),
            ", ".join(f"{name}: {param}" for name, param in seen.items()))


def answer_beyond_the_context(build):
    """atom generate --max-tokens 5000 with a context of 2048."""
    result = build.run("generate", build.checkpoint, "tar", "--max-tokens", 5000, timeout=120)
    return result.returncode != 0, (result.stderr.strip().split("\n")[-1][:120]
                                    if result.returncode else "accepted")


def lengths_beyond_the_context(build):
    """bench serve with 4000 tokens in and 128 out for a context of 2048."""
    with build.serve() as server:
        result = build.run("bench", "serve", "--base-url", server.url, "--tokenizer",
                           build.checkpoint, "--input-len", 4000, "--output-len", 128,
                           "--num-prompts", 4, "--no-progress")
        asked = "POST /v1/completions" in server.output()
    line = re.search(r".*context of.*", result.stdout + result.stderr)
    return (line is not None and "fitted" not in line[0] and not asked,
            f"{line[0].strip()[:100] if line else 'no word of it'}; requests were "
            f"{'sent, and refused' if asked else 'not sent'}")


def peak_above_the_mean(build):
    """bench serve's peak throughput in a run of less than a second."""
    with build.serve() as server:
        result = build.run("bench", "serve", "--base-url", server.url, "--tokenizer",
                           build.checkpoint, "--input-len", 8, "--output-len", 64,
                           "--num-prompts", 4, "--no-progress")
    figures = {name: float(value) for name, value in re.findall(
        r"^\s*(peak output|output) (?:token )?throughput[^\d]*([\d.]+)", result.stdout.lower(), re.M)}
    peak, mean = figures.get("peak output"), figures.get("output")
    return (mean is not None and (peak is None or peak >= mean),
            f"peak {peak}, mean {mean}")


def names_of_types(build):
    """--dtype half and float."""
    refused = []
    for name in ("half", "float"):
        result = build.run("generate", build.checkpoint, "tar", "--max-tokens", 1, "--dtype", name)
        if result.returncode:
            refused.append(name)
    return not refused, "refused: " + ", ".join(refused) if refused else "taken"


def structured_output(build):
    """Forms of answers: JSON, schemas, expressions, grammars, choices."""
    return served(build, chats({
        "json_object": {"response_format": {"type": "json_object"}},
        "json_schema": {"response_format": {"type": "json_schema", "json_schema": {
            "name": "x", "schema": SCHEMA}}},
        "structured_outputs.json": {"structured_outputs": {"json": SCHEMA}},
        "regex": {"structured_outputs": {"regex": "[a-c]{4}"}},
        "choice": {"structured_outputs": {"choice": ["left", "right"]}},
        "grammar": {"structured_outputs": {"grammar": 'root ::= "a" | "b"'}}}))


def forced_calls(build):
    """tool_choice required, named and allowed_tools; strict tools."""
    named = {"type": "function", "function": {"name": "ping"}}
    return served(build, chats({
        "required": {"tools": [TOOL], "tool_choice": "required"},
        "named": {"tools": [TOOL], "tool_choice": named},
        "allowed_tools": {"tools": [TOOL], "tool_choice": {
            "type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}},
        "strict": {"tools": [{**TOOL, "function": {**TOOL["function"], "strict": True}}]}}))


def other_interfaces(build):
    """Responses, Messages, and small endpoints."""
    ask_one = {"model": "tldr-8m", "max_tokens": 4, "messages": MESSAGES}
    return served(build, {
        "/v1/responses": ("/v1/responses", {"input": "x", "max_output_tokens": 4}),
        "/v1/messages": ("/v1/messages", ask_one),
        "count_tokens": ("/v1/messages/count_tokens", ask_one),
        "render": (CHAT + "/render", {"messages": MESSAGES}),
        "/reset_prefix_cache": ("/reset_prefix_cache", {}),
        **{path: (path, None) for path in ("/tokenizer_info", "/load", "/ping", "/")}})


def more_fields(build):
    """Fields of vLLM: budgets of thinking, allowed and bad tokens, cut prompts, roles."""
    return served(build, chats({
        "allowed_token_ids": {"allowed_token_ids": [100, 200]}, "bad_words": {"bad_words": ["tar"]},
        "truncate_prompt_tokens": {"truncate_prompt_tokens": 5},
        "return_tokens_as_token_ids": {"return_tokens_as_token_ids": True, "logprobs": True},
        "role function": {"messages": [{"role": "function", "name": "f", "content": "7"}, *MESSAGES]},
        "thinking budget": {"max_thinking_tokens": 5}}), "--reasoning-parser", "qwen3")


def usage(build):
    """system_fingerprint and reasoning_tokens."""
    with build.serve(*GENERAL) as server:
        answer = ask(server, CHAT, {"messages": MESSAGES, "max_tokens": 4})[2]
    details = answer["usage"].get("completion_tokens_details") or {}
    found = answer.get("system_fingerprint"), details.get("reasoning_tokens")
    return None not in found, f"{found[0]}, {found[1]}"


def options_of_others(build):
    """Options of vLLM's recipes."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write("max-model-len: 128\n")
        config.flush()
        cases = [["--enable-auto-tool-choice"], ["--trust-remote-code"], ["--enforce-eager"],
                 ["--served-model-name", "a", "b"], ["--load-format", "auto"],
                 ["--generation-config", "vllm"], ["--override-generation-config", "{}"],
                 ["--max-logprobs", "20"], ["--root-path", "/a"], ["--config", config.name],
                 ["--disable-log-requests"], ["--swap-space", "4"],
                 ["--enable-force-include-usage"], ["--enable-prompt-tokens-details"],
                 ["--chat-template-content-format", "auto"], ["--method", "ngram"]]
        refused = [flags[0] for flags in cases if is_refused(build, flags)]
    return not refused, f"{len(cases) - len(refused)} of {len(cases)}" + (
        ": not " + ", ".join(refused) if refused else "")


def is_refused(build, flags):
    """Whether `serve` ends with an error of usage rather than with the taken port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = subprocess.run(
            [build.atom, "serve", str(build.checkpoint), "--port", str(taken.getsockname()[1]),
             *flags], capture_output=True, text=True, timeout=60, check=False)
    return "already in use" not in result.stderr


def several_ranks(build):
    """-tp 2, -pp 2 and -dp 2."""
    failed = []
    for flag in ("-tp", "-pp", "-dp"):
        result = build.run("generate", build.checkpoint, "tar", "--max-tokens", 2, "--device", "cpu",
                           flag, 2)
        if result.returncode:
            failed.append(flag)
    return not failed, "refused: " + ", ".join(failed) if failed else "run"


CASES = (second_turns, hints, missing_template, mistakes_before_loading, limit_that_failed,
         text_offsets, usage_in_every_event, named_fields, answer_beyond_the_context,
         lengths_beyond_the_context, peak_above_the_mean, names_of_types, structured_output, forced_calls,
         other_interfaces, more_fields, usage, options_of_others, several_ranks)
