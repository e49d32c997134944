// How one message looks: text, reasoning and tool calls apart, and what can be done with it.

import { button, copyText, element } from "./dom.js";
import { MarkdownStream, renderMarkdown } from "./markdown.js";

const kPiece = 2048;  // characters
const kNames = { user: "You", assistant: "Model", tool: "Tool result" };

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// {role, content, reasoning, tool_calls, note, error} as conversation.js has them; `actions` are
// [label, function].
export class MessageView {
  constructor(message, actions) {
    this.message = message;
    this.text = element("div", { class: "text" });
    this.calls = element("div", { class: "calls" });
    this.note = element("span", { class: "note" });
    this.buttons = element("span", { class: "buttons" });
    this.foot = element("footer", {}, this.note, this.buttons);
    const name = kNames[message.role] ?? message.role;
    this.root = element("article", { class: message.role, "aria-label": name },
                        element("h2", {}, name), this.calls, this.foot);
    this.root.insertBefore(this.text, this.calls);
    this.actions = actions;
    this.reasoning = null;
    this.markdown = null;
    this.showWhole();
  }

  showWhole() {
    const { role, content, reasoning, tool_calls: calls } = this.message;
    if (reasoning) {
      this.addReasoning(reasoning);
      this.endReasoning();
    }
    if (role === "assistant") renderMarkdown(this.text, content);
    else this.text.append(content);
    this.showCalls(calls ?? []);
    this.showFoot();
  }

  // The rest is for answers that are being streamed.

  addReasoning(text) {
    if (this.reasoning === null) {
      this.reasoning = document.createTextNode("");
      this.summary = element("summary", {}, "Reasoning …");
      this.details = element("details", { class: "reasoning", open: true }, this.summary,
                             element("div", {}, this.reasoning));
      this.root.insertBefore(this.details, this.text);
    }
    this.reasoning.appendData(text);
    // A long one is cut into pieces, so that the browser lays out only the last one again.
    const end = this.reasoning.data.lastIndexOf("\n");
    if (this.reasoning.length < kPiece || end < 0) return;
    const rest = this.reasoning.splitText(end + 1);
    this.reasoning.deleteData(end, 1);
    this.details.append(element("div", {}, rest));
    this.reasoning = rest;
  }

  endReasoning(seconds) {
    if (this.reasoning === null) return;
    this.details.open = false;
    this.summary.textContent =
      seconds === undefined ? "Reasoning" : `Reasoning, ${seconds.toFixed(1)} s`;
  }

  addText(text) {
    this.markdown ??= new MarkdownStream(this.text);
    this.markdown.append(text);
  }

  showCalls(calls) {
    this.calls.replaceChildren(...calls.map((call) =>
      element("figure", { class: "call" },
              element("figcaption", {}, "Calls ", element("code", {}, call.function.name)),
              element("pre", { tabindex: "0" }, prettyJson(call.function.arguments)))));
  }

  finish() {
    this.markdown?.end();
    this.showFoot();
  }

  showFoot() {
    const { note, error, content } = this.message;
    this.note.textContent = note ?? "";
    this.root.querySelector(".error")?.remove();
    if (error) {
      this.root.insertBefore(element("p", { class: "error", role: "alert" }, error), this.foot);
    }
    const copy = button("Copy", () => copyText(this.message.content, copy));
    const shown = this.actions.map(([label, action]) => button(label, () => action(this)));
    this.buttons.replaceChildren(...(content ? [copy] : []), ...shown);
  }

  // Puts a field in place of the text; `done(text)` gets what was written, null when it was left.
  edit(done) {
    const input = element("textarea", { "aria-label": "Edit the message", rows: "3" });
    input.value = this.message.content;
    const form = element("form", { class: "edit" }, input,
                         element("button", { class: "primary" }, "Send"),
                         button("Cancel", () => leave(null)));
    const leave = (text) => {
      form.remove();
      this.text.hidden = this.foot.hidden = false;
      done(text);
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      leave(input.value.trim() === "" ? null : input.value);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") leave(null);
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    this.text.hidden = this.foot.hidden = true;
    this.root.append(form);
    input.focus();
  }

  // A field for the result of each tool call; `done(results)` gets them in order.
  askResults(done) {
    const inputs = this.message.tool_calls.map((call) =>
      element("textarea", { rows: "2", "aria-label": `Result of ${call.function.name}`,
                            placeholder: `Result of ${call.function.name}` }));
    const form = element("form", { class: "results" }, ...inputs,
                         element("button", { class: "primary" }, "Send results"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      form.remove();
      done(inputs.map((input) => input.value));
    });
    this.root.insertBefore(form, this.foot);
    inputs[0].focus();
  }
}
