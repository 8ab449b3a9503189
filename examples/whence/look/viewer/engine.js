// What the engine in the page, where there is one, says of edits.
import { source } from "./source.js";

export const has_engine = source.has_engine;

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
    await source.look(edits).then(then, (problem) => then({ problem: problem.message }));
  }
  busy = false;
}
