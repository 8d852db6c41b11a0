"use strict";
// A chat with the gateway that serves this page. The key and the conversation are in this tab's memory alone.
const PHASES = ["admit", "decode_queue", "prefill_queue", "prefill", "transfer", "first_token"];
const TOOL = { type: "function", function: { name: "get_weather", description: "Get the weather of a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false } } };
const at = (id) => document.getElementById(id);
let messages = [];
let running = null;

// Text goes into the page as text: what a model writes is never markup.
function add(parent, tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

const headers = () => ({ "Content-Type": "application/json", ...(at("key").value ? { Authorization: "Bearer " + at("key").value } : {}) });
const shown = (seconds) => (seconds < 0.0995 ? (seconds * 1e3).toFixed(1) + " ms" : seconds.toFixed(2) + " s");

async function models() {
  const answer = await fetch("/v1/models", { headers: headers() });
  if (!answer.ok) return;
  at("model").replaceChildren();
  for (const model of (await answer.json()).data) add(at("model"), "option", "", model.id);
}

// The events of the stream, one after the other.
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ") && part !== "data: [DONE]") yield JSON.parse(part.slice(6));
  }
}

function facts(turn, timing, usage) {
  const box = add(turn, "div", "facts");
  if (timing) {
    const bar = add(box, "div", "bar");
    const legend = add(box, "div", "legend");
    for (const phase of PHASES) {
      add(bar, "i", phase).style.flexGrow = (1000 * timing[phase]) / timing.ttft;
      const entry = add(legend, "span");
      add(entry, "b", phase);
      entry.append(phase.replace("_", " ") + " " + shown(timing[phase]));
    }
  }
  const words = [];
  if (timing) words.push("first token after " + shown(timing.ttft));
  if (timing && timing.tpot) words.push((1 / timing.tpot).toFixed(1) + " tokens/s");
  if (usage) words.push(usage.prompt_tokens + " tokens in, " + usage.prompt_tokens_details.cached_tokens + " of them cached, " + usage.completion_tokens + " out");
  if (timing) words.push((timing.prefill_worker ? timing.prefill_worker + " → " : "") + timing.decode_worker + (timing.prefill_worker ? " by " + timing.link : ""));
  add(box, "div", "", words.join(" · "));
}

// A token as people can see it.
const piece = (token) => token.token.replaceAll(" ", "·").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
const percent = (share) => (share > 0 && share < 1e-4 ? "<0.01%" : (100 * share).toFixed(2) + "%");
const STEPS = [["vocabulary", "vocabulary"], ["constraint", "after_constraint"], ["temperature", "after_temperature"], ["top-k", "after_top_k"], ["top-p", "after_top_p"], ["min-p", "after_min_p"]];

// The filter that dropped a token: the list is in the order in which they cut.
function dropped(trace, place) {
  if (trace.how === "forced" && trace.likeliest[place].token_id === trace.token_id) return "";
  const step = STEPS.slice(2).find(([, field]) => place >= trace[field]);
  return step ? step[0] : "";
}

// How one token was chosen: what each filter left, the random number, the likeliest ones before and after.
function showTrace(box, trace) {
  box.replaceChildren();
  const how = trace.how === "drawn" ? "drawn with the random number " + trace.uniform.toFixed(6) : trace.how === "greedy" ? "the likeliest" : "written for the model";
  add(box, "div", "", "id " + trace.token_id + " · " + how);
  add(box, "div", "steps", STEPS.map(([name, field]) => name + " " + trace[field].toLocaleString("en")).join(" → "));
  const table = add(box, "table");
  const head = add(table, "tr");
  for (const name of ["token", "id", "logit", "before", "", "drawn", ""]) add(head, "th", "", name);
  trace.likeliest.forEach((token, place) => {
    const row = add(table, "tr", token.token_id === trace.token_id ? "chosen" : "");
    add(row, "td", "", piece(token));
    add(row, "td", "", String(token.token_id));
    add(row, "td", "", token.adjusted_logit === null ? "" : token.adjusted_logit.toFixed(2));
    for (const [share, name] of [[token.probability, "share"], [token.drawn_probability, "share drawn"]]) {
      add(row, "td", "", share > 0 || name === "share" ? percent(share) : dropped(trace, place));
      const bar = add(row, "td", name);
      if (share > 0) add(bar, "i").style.width = 100 * share + "%";
    }
  });
}

// Tokens of an answer, each with its trace.
function addTokens(box, traces) {
  for (const trace of traces) {
    const token = add(box, "button", "token", piece(trace.likeliest.find((one) => one.token_id === trace.token_id) || { token: "" }));
    token.type = "button";
    const show = () => {
      if (token.classList.contains("open")) return;  // a click gives the focus, too
      const open = box.querySelector(".trace") || document.createElement("div");
      for (const other of box.querySelectorAll(".open")) other.classList.remove("open");
      open.className = "trace";
      token.classList.add("open");
      showTrace(open, trace);
      box.append(open);
    };
    token.addEventListener("click", show);
    token.addEventListener("focus", show);
    // A trace that is open stays behind all tokens.
    const open = box.querySelector(".trace");
    if (open) box.append(open);
  }
}

// One answer; true: it called the tool, whose result is there now.
async function reply() {
  const turn = add(at("talk"), "div", "turn");
  const said = { role: "assistant", content: "" };
  let thinking, thought, body, calls = [], tokens, timing, usage;
  running = new AbortController();
  at("send").textContent = "Stop";
  try {
    const answer = await fetch("/v1/chat/completions", { method: "POST", signal: running.signal, headers: headers(), body: JSON.stringify({
      model: at("model").value, messages, stream: true, stream_options: { include_usage: true }, baton_timing: true,
      explain: at("explain").checked, chat_template_kwargs: { enable_thinking: at("thinking").checked }, ...(at("tools").checked ? { tools: [TOOL] } : {}) }) });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    for await (const event of events(answer)) {
      if (event.error) throw new Error(event.error.message);
      usage = event.usage || usage;
      const choice = event.choices && event.choices[0];
      if (!choice) continue;
      timing = choice.baton_timing || timing;
      const delta = choice.delta;
      if (delta.reasoning_content) {
        if (!thinking) {
          thinking = add(turn, "details");
          add(thinking, "summary", "", "Thinking");
          thought = add(thinking, "div", "");
        }
        thought.append(delta.reasoning_content);
      }
      if (delta.content) {
        body = body || add(turn, "div", "");
        body.append(delta.content);
        said.content += delta.content;
      }
      for (const call of delta.tool_calls || []) {
        calls[call.index] = calls[call.index] || { id: call.id, name: call.function.name, text: "", box: add(turn, "div", "call", call.function.name + " ") };
        calls[call.index].text += call.function.arguments || "";
        calls[call.index].box.textContent = calls[call.index].name + " " + calls[call.index].text;
      }
      if (choice.sampling) {
        tokens = tokens || add(turn, "div", "tokens");
        addTokens(tokens, choice.sampling);
      }
      // Behind whatever the answer has by now; where it stands already, a move would take the focus.
      if (tokens && turn.lastChild !== tokens) turn.append(tokens);
      at("talk").scrollTop = at("talk").scrollHeight;
    }
    if (calls.length) said.tool_calls = calls.map(({ id, name, text }) => ({ id, type: "function", function: { name, arguments: text } }));
    messages.push(said);
    // The tool is there to be looked at: it always says the same.
    for (const call of calls) messages.push({ role: "tool", tool_call_id: call.id, content: "sunny" });
    facts(turn, timing, usage);
    return calls.length > 0;
  } catch (error) {
    if (error.name !== "AbortError") add(turn, "div", "error", error.message);
    if (said.content) messages.push(said);
    else if (messages.at(-1).role === "user") messages.pop();
    return false;
  } finally {
    running = null;
    at("send").textContent = "Send";
    at("talk").scrollTop = at("talk").scrollHeight;
  }
}

async function send(text) {
  messages.push({ role: "user", content: text });
  add(at("talk"), "div", "turn user", text);
  for (let turns = 0; turns < 4 && (await reply()); ++turns);
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) return running.abort();
  const text = at("text").value.trim();
  if (!text) return;
  at("text").value = "";
  send(text);
});
at("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!running) at("ask").requestSubmit();
});
at("clear").addEventListener("click", () => {
  if (running) running.abort();
  messages = [];
  at("talk").replaceChildren();
});
at("key").addEventListener("change", models);
models();
