// Puts the page together: views, dialogs, the model.

import { forgetKey, request, setKeyPrompt } from "./api.js";
import { Charts } from "./charts.js";
import { Chat } from "./chat.js";
import { element } from "./dom.js";
import { Settings } from "./settings.js";

const byId = (id) => document.getElementById(id);

function askForKey(reason) {
  const dialog = byId("key-dialog");
  byId("key-reason").textContent = reason;
  byId("key").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    const close = () => resolve(dialog.returnValue === "use" ? byId("key").value.trim() : null);
    dialog.addEventListener("close", close, { once: true });
  });
}

async function loadModels() {
  const select = byId("model");
  try {
    const { data } = await (await request("v1/models")).json();
    select.replaceChildren(...data.map(({ id }) => element("option", { value: id }, id)));
  } catch (error) {
    select.replaceChildren(element("option", { value: "" }, "no model"));
    byId("notice").textContent = error.message;
    byId("notice").hidden = false;
  }
}

function showView(name, charts) {
  for (const view of ["chat", "charts"]) {
    const isShown = view === name;
    byId(`view-${view}`).hidden = !isShown;
    byId(`tab-${view}`).setAttribute("aria-selected", String(isShown));
    byId(`tab-${view}`).tabIndex = isShown ? 0 : -1;
  }
  if (name === "charts") charts.start();
  else charts.stop();
}

function listenToTabs(charts) {
  for (const [name, other] of [["chat", "charts"], ["charts", "chat"]]) {
    const tab = byId(`tab-${name}`);
    tab.addEventListener("click", () => showView(name, charts));
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      showView(other, charts);
      byId(`tab-${other}`).focus();
    });
  }
}

function start() {
  setKeyPrompt(askForKey);
  const settings = new Settings(byId("settings"), byId("settings-fields"));
  const names = ["messages", "scroller", "composer", "input", "send", "stop", "notice"];
  const parts = Object.fromEntries(names.map((name) => [name, byId(name)]));
  const chat = new Chat(parts, settings, () => byId("model").value || undefined);
  listenToTabs(new Charts(byId("charts"), byId("charts-status")));
  byId("new-chat").addEventListener("click", () => chat.clear());
  byId("open-settings").addEventListener("click", () => byId("settings").showModal());
  byId("reset-settings").addEventListener("click", () => settings.reset());
  byId("forget-key").addEventListener("click", forgetKey);
  byId("key-cancel").addEventListener("click", () => byId("key-dialog").close());
  byId("input").focus();
  loadModels();
}

start();
