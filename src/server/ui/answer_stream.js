// One answer of /v1/chat/completions as it arrives, put together into a message.

import { events, request } from "./api.js";

export class AnswerStream {
  // `message` is filled; `onNews(kind, text)` is told of it: "reasoning", "content", "calls".
  constructor(message, onNews) {
    this.message = message;
    this.onNews = onNews;
    this.begin = performance.now();
    this.first = 0;
    this.last = 0;
    this.usage = null;
    this.finishReason = null;
  }

  async run(body, signal) {
    const options = { body: { ...body, stream: true, stream_options: { include_usage: true } },
                      signal };
    const response = await request("v1/chat/completions", options);
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      if (event.usage) this.usage = event.usage;
      const choice = event.choices?.[0];
      if (choice === undefined) continue;
      this.take(choice.delta ?? {});
      if (choice.finish_reason) this.finishReason = choice.finish_reason;
    }
  }

  take(delta) {
    const reasoning = delta.reasoning ?? delta.reasoning_content;
    if (!reasoning && !delta.content && !delta.tool_calls) return;
    this.last = performance.now();
    if (this.first === 0) this.first = this.last;
    if (reasoning) {
      this.message.reasoning = (this.message.reasoning ?? "") + reasoning;
      this.onNews("reasoning", reasoning);
    }
    if (delta.content) {
      this.message.content += delta.content;
      this.onNews("content", delta.content);
    }
    for (const piece of delta.tool_calls ?? []) this.takeCall(piece);
    if (delta.tool_calls) this.onNews("calls", "");
  }

  takeCall(piece) {
    this.message.tool_calls ??= [];
    const calls = this.message.tool_calls;
    calls[piece.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
    const call = calls[piece.index];
    if (piece.id) call.id = piece.id;
    if (piece.function?.name) call.function.name += piece.function.name;
    if (piece.function?.arguments) call.function.arguments += piece.function.arguments;
  }

  // What the answer took, as one line.
  summary() {
    const parts = [];
    if (this.usage) {
      const { prompt_tokens: prompt, completion_tokens: count } = this.usage;
      const cached = this.usage.prompt_tokens_details?.cached_tokens;
      parts.push(`${prompt} + ${count} tokens` + (cached ? ` (${cached} cached)` : ""));
      const seconds = (this.last - this.first) / 1000;
      if (count > 1 && seconds > 0) parts.push(`${((count - 1) / seconds).toFixed(1)} tokens/s`);
    }
    if (this.first > 0) parts.push(`first after ${((this.first - this.begin) / 1000).toFixed(2)} s`);
    if (this.finishReason === "length") parts.push("cut at the limit of tokens");
    return parts.join(" · ");
  }
}
