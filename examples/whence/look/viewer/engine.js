// The engine behind the page, where there is one: the playground shows the page in a frame of this name, and answers.
import { run_of } from "./data.js";

export const has_engine = window.name === "engine";

function ask(edits) {
  const { port1, port2 } = new MessageChannel();
  parent.postMessage({ edits }, "*", [port2]);
  return new Promise((resolve) => port1.onmessage = ({ data }) => resolve(data));
}

// The pass with these edits, as a run, and its loss; or the engine's sentence in their place. The newest wish wins: one
// who drags asks no more than the engine answers.
let wish = null, busy = false;
export async function ask_newest(edits, then) {
  wish = { edits, then };
  if (busy) return;
  busy = true;
  while (wish) {
    const { edits, then } = wish;
    wish = null;
    const { problem, page, numbers, ...losses } = await ask(edits);
    then(problem ? { problem } : { run: run_of(page, numbers), ...losses });
  }
  busy = false;
}
