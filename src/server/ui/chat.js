// The conversation: what was said, and what sends, stops, repeats and changes it. It lives as long
// as the browser's tab.

import { AnswerStream } from "./answer_stream.js";
import { MessageView } from "./message_view.js";

const kStored = "atom-conversation";
const kStick = 48;  // pixels from the end within which the view follows the answer

export class Chat {
  // `parts`: the elements messages, scroller, composer, input, send, stop, notice.
  constructor(parts, settings, modelName) {
    Object.assign(this, parts);
    this.settings = settings;
    this.modelName = modelName;
    this.conversation = [];
    this.views = [];
    this.abort = null;  // of the answer that is being streamed
    this.follows = true;
    this.listen();
    this.restore();
  }

  listen() {
    this.composer.addEventListener("submit", (event) => {
      event.preventDefault();
      this.sendInput();
    });
    this.stop.addEventListener("click", () => this.stopAnswer());
    this.input.addEventListener("input", () => this.fitInput());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.sendInput();
      } else if (event.key === "ArrowUp" && this.input.value === "") {
        this.editLast();
      }
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.abort !== null) this.stopAnswer();
    });
    this.scroller.addEventListener("scroll", () => {
      const { scrollHeight, scrollTop, clientHeight } = this.scroller;
      this.follows = scrollHeight - scrollTop - clientHeight < kStick;
    });
    this.composer.addEventListener("paste", (event) => this.refuseFiles(event, event.clipboardData));
    for (const target of [this.composer, this.scroller]) {
      target.addEventListener("dragover", (event) => event.preventDefault());
      target.addEventListener("drop", (event) => this.refuseFiles(event, event.dataTransfer));
    }
  }

  refuseFiles(event, data) {
    if (data === null || data.files.length === 0) return;
    event.preventDefault();
    const isImage = [...data.files].some((file) => file.type.startsWith("image/"));
    this.tell(isImage ? "This server's models read text only: the image was left out."
                      : "Only text can be sent: the file was left out.");
  }

  tell(text) {
    this.notice.textContent = text;
    this.notice.hidden = text === "";
  }

  fitInput() {
    this.tell("");
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight + 2, window.innerHeight / 3)}px`;
  }

  sendInput() {
    const content = this.input.value;
    if (content.trim() === "" || this.abort !== null) return;
    this.input.value = "";
    this.fitInput();
    this.add({ role: "user", content });
    this.answer();
  }

  stopAnswer() {
    this.abort?.abort();
  }

  clear() {
    this.stopAnswer();
    this.cut(0);
    this.input.focus();
  }

  // Forgets everything from message number `index` on.
  cut(index) {
    this.conversation.length = index;
    for (const view of this.views.splice(index)) view.root.remove();
    this.store();
  }

  add(message) {
    const view = new MessageView(message, this.actionsOf(message));
    this.conversation.push(message);
    this.views.push(view);
    this.messages.append(view.root);
    this.follows = true;
    this.follow();
    this.store();
    return view;
  }

  actionsOf(message) {
    if (message.role === "user") return [["Edit", (view) => this.edit(view)]];
    if (message.role === "assistant") return [["Regenerate", (view) => this.regenerate(view)]];
    return [];
  }

  regenerate(view) {
    if (this.abort !== null) return;
    this.cut(this.views.indexOf(view));
    this.answer();
  }

  edit(view) {
    if (this.abort !== null) return;
    view.edit((text) => {
      this.input.focus();
      if (text === null) return;
      this.cut(this.views.indexOf(view));
      this.add({ role: "user", content: text });
      this.answer();
    });
  }

  editLast() {
    const last = this.views.findLast((view) => view.message.role === "user");
    if (last !== undefined) this.edit(last);
  }

  // What the model is sent: the conversation without what only the page knows.
  request() {
    const system = this.settings.system();
    const messages = system === "" ? [] : [{ role: "system", content: system }];
    for (const message of this.conversation) {
      const { role, content, reasoning, tool_calls, tool_call_id } = message;
      if (role === "assistant" && content === "" && !tool_calls) continue;  // it failed
      messages.push({ role, content, reasoning, tool_calls, tool_call_id });
    }
    return { model: this.modelName(), messages, ...this.settings.fields() };
  }

  async answer() {
    let body;
    try {
      body = this.request();
    } catch (error) {
      this.tell(error.message);
      return;
    }
    const message = { role: "assistant", content: "" };
    const view = this.add(message);
    view.root.setAttribute("aria-busy", "true");
    const screen = new Screen(view, () => this.follow());
    const stream = new AnswerStream(message, (kind, text) => screen.take(kind, text));
    this.abort = new AbortController();
    this.showBusy(true);
    try {
      await stream.run(body, this.abort.signal);
      message.note = stream.summary();
    } catch (error) {
      message.note = stream.summary();
      if (error.name === "AbortError") message.note = `stopped ${message.note}`;
      else message.error = error.message;
    }
    this.abort = null;
    screen.end();
    view.root.removeAttribute("aria-busy");
    view.finish();
    this.showBusy(false);
    this.store();
    this.follow();
    if (message.tool_calls && !message.error) this.askResults(view);
  }

  askResults(view) {
    view.askResults((results) => {
      const calls = view.message.tool_calls;
      calls.forEach((call, i) =>
        this.add({ role: "tool", tool_call_id: call.id, content: results[i] }));
      this.answer();
    });
    this.follow();
  }

  showBusy(isBusy) {
    this.stop.hidden = !isBusy;
    this.send.hidden = isBusy;
    this.messages.classList.toggle("busy", isBusy);
  }

  follow() {
    if (this.follows) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  store() {
    try {
      sessionStorage.setItem(kStored, JSON.stringify(this.conversation));
    } catch {
      sessionStorage.removeItem(kStored);  // larger than the browser keeps
    }
  }

  restore() {
    const stored = JSON.parse(sessionStorage.getItem(kStored) ?? "[]");
    for (const message of stored) this.add(message);
  }
}

// Gathers what arrives and shows it once a frame.
class Screen {
  constructor(view, onShown) {
    this.view = view;
    this.onShown = onShown;
    this.reasoning = "";
    this.content = "";
    this.hasCalls = false;
    this.isAsked = false;
    this.begin = performance.now();
  }

  take(kind, text) {
    if (kind === "reasoning") this.reasoning += text;
    if (kind === "content") this.content += text;
    if (kind === "calls") this.hasCalls = true;
    if (this.isAsked) return;
    this.isAsked = true;
    // Tabs that nobody sees have no frames.
    if (document.hidden) setTimeout(() => this.show(), 200);
    else requestAnimationFrame(() => this.show());
  }

  show() {
    this.isAsked = false;
    const { view } = this;
    if (this.reasoning) view.addReasoning(this.reasoning);
    if ((this.content || this.hasCalls) && this.begin !== null) {
      view.endReasoning((performance.now() - this.begin) / 1000);
      this.begin = null;
    }
    if (this.content) view.addText(this.content);
    if (this.hasCalls) view.showCalls(view.message.tool_calls);
    this.reasoning = this.content = "";
    this.hasCalls = false;
    this.onShown();
  }

  end() {
    this.show();
    if (this.begin !== null) this.view.endReasoning((performance.now() - this.begin) / 1000);
  }
}
