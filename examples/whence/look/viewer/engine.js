// Asks the engine, in the page or behind it, for the pass with one number changed.
import { source } from "./source.js";

export const has_engine = source.has_engine || source.is_served;

// Calls `then` with the answer to "turn", or with the engine's error. Only the newest request waits: a drag sends no
// more than the engine answers.
let wish = null, busy = false;
export async function ask_newest(place, then) {
  wish = { place, then };
  if (busy) return;
  busy = true;
  while (wish) {
    const { place, then } = wish;
    wish = null;
    await source.turn(place).then(then, (problem) => then({ problem: problem.message }));
  }
  busy = false;
}
