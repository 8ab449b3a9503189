// Answers to the questions of playground/session.h, from the engine if the page holds one, else from what was recorded
// when the page was written: one whole pass, and the runs compared with it.
const element = (id) => document.getElementById(id), text_of = (id) => element(id).textContent;
export const json_in = (id) => JSON.parse(element(id)?.textContent ?? "null");

// The engine's thread includes this function's text, so it may use nothing around it.
async function inflated(text) {
  if (!globalThis.DecompressionStream) throw new Error("this browser is too old: it has no DecompressionStream");
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer();
}

// ---- The recorded answer
async function recorded({ ask }) {
  if (ask !== "inspect") throw new Error(`This page has no engine for "${ask}".`);
  const besides = [...document.querySelectorAll("script.look-beside")].map(({ textContent }) => JSON.parse(textContent));
  return { page: json_in("look-data"), besides, numbers: await inflated(text_of("look-numbers")) };
}

// ---- The engine: a question returns a promise of its answer, rejected with the engine's error
// A run in the page: the question that opens it, and the files that the engine then reads.
export const embedded_run = json_in("run");
const waiting = new Map();
let worker = null, asked = 0;

// `dead` is a sentence once the engine has stopped; then `when_dead` is called. `turn` asks for the pass that is shown
// with one number changed. A served page has its engine behind it (serve.cpp); its questions carry the page's text or sequence.
export const source = {
  has_engine: Boolean(element("engine-module")), is_served: Boolean(element("served")), ask: recorded, dead: "", when_dead: () => {},
  turn: (place) => ask_server({ ask: "turn", model: 0, ...place }), put_edits: null,
};
if (source.is_served) source.put_edits = async (edits) => {
  if (!edits.length) return "";
  const { edits: [{ real, predicted }] } = await ask_server({ ask: "edit", model: 0, edits: [edits.join("; ")] });
  const change = real === null ? "The loss is not finite" : `The loss changes by ${real.toPrecision(3)}`;
  return `${change}; the gradient said ${predicted?.toPrecision(3) ?? "nothing"}.`;
};
async function ask_server(question) {
  const answer = await fetch(`ask${location.search}`, { method: "POST", body: JSON.stringify(question) })
    .then((response) => response.ok ? response.json() : Promise.reject(new Error(`the engine refused this: ${response.status}`)),
      () => Promise.reject(new Error("The engine does not answer: has its program ended?")));
  if (answer.error) throw new Error(answer.error);
  return answer;
}
if (source.has_engine) source.ask = ask_engine;

export function start_engine() {
  worker?.terminate();
  source.dead = "";
  const text = `${inflated}\nfunction load_engine(Module) {\n${text_of("engine-script")}\n}\n${text_of("worker-script")}`;
  worker = new Worker(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
  worker.onmessage = ({ data }) => receive(data);
  worker.onerror = (event) => {
    event.preventDefault();
    die(event.message || "its thread ended");
  };
  worker.postMessage({ module: text_of("engine-module"), files: embedded_run?.files ?? {} });
}

function receive({ id, dead, answer, numbers, milliseconds }) {
  if (dead) return die(dead);
  const { resolve, reject } = waiting.get(id) ?? {};
  waiting.delete(id);
  if (answer.error) reject?.(new Error(answer.error));
  else resolve?.({ ...answer, numbers, milliseconds });
}

function die(cause) {
  worker?.terminate();
  source.dead = `The engine stopped: ${cause}. It can start again, with new weights.`;
  for (const { reject } of waiting.values()) reject(new Error(source.dead));
  waiting.clear();
  source.when_dead();
}

function ask_engine(question) {
  if (source.dead) return Promise.reject(new Error(source.dead));
  return new Promise((resolve, reject) => {
    waiting.set(++asked, { resolve, reject });
    worker.postMessage({ id: asked, question });
  });
}
