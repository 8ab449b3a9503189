// Asks the engine in the page, if there is one, about edits.
import { source } from "./source.js";

export const has_engine = source.has_engine;

// Calls `then` with the pass under these edits, as a run, and its loss; or with the engine's error. Only the newest
// request waits: a drag sends no more than the engine answers.
let wish = null, busy = false;
export async function ask_newest(edits, then) {
  wish = { edits, then };
  if (busy) return;
  busy = true;
  while (wish) {
    const { edits, then } = wish;
    wish = null;
    await source.look(edits).then(then, (problem) => then({ problem: problem.message }));
  }
  busy = false;
}
