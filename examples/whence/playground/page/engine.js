// The engine: a question is a promise of its answer, or of the sentence that the engine says instead.
const text_of = (id) => document.getElementById(id).textContent;
// A run in the page: the question that opens it, and what the engine then reads of a disk, file by file.
export const embedded_run = JSON.parse(document.getElementById("run")?.textContent ?? "null");
const waiting = new Map();
let worker = null, asked = 0;

// `dead` is a sentence once the engine has stopped; `when_dead` is told.
export const engine = { dead: "", when_dead: () => {} };

export function start_engine() {
  worker?.terminate();
  engine.dead = "";
  if (!globalThis.DecompressionStream) return die("this browser is too old: it has no DecompressionStream");
  const text = `function load_engine(Module) {\n${text_of("engine-script")}\n}\n${text_of("worker-script")}`;
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  worker = new Worker(address);
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
  engine.dead = `The engine stopped: ${cause}. It can start again, with new weights.`;
  for (const { reject } of waiting.values()) reject(new Error(engine.dead));
  waiting.clear();
  engine.when_dead();
}

export function ask(question) {
  if (engine.dead) return Promise.reject(new Error(engine.dead));
  return new Promise((resolve, reject) => {
    waiting.set(++asked, { resolve, reject });
    worker.postMessage({ id: asked, question });
  });
}
