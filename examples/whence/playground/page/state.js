// What the reader has chosen, and who draws it. `vector`: what else is edited than pairs, with its row and column.
export const start = {
  layer: 0, head: 0, sample: 0, i: -1, j: -1, quantity: "gates", part: "value", model: 0, lesson: "", theme: "auto",
  vector: "", slice: 0, row: 0, column: 0,
};
// `said` is the status line; `playing`: steps are being taken.
export const state = { ...start, said: "", playing: false };

// Everything drawn is drawn again with the screen's next picture, however often it is asked for.
export const drawn = [];
let planned = false;
export function redraw() {
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => {
    planned = false;
    for (const draw of drawn) draw();
  });
}

export function say(sentence) {
  state.said = sentence;
  redraw();
}

export function choose(change) {
  Object.assign(state, change);
  redraw();
}

export const still = matchMedia("(prefers-reduced-motion: reduce)");
