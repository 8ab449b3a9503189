// The state of the page, kept in the address. i, j, d, n, c, r, k, w are the selected places along the axes.

export const start = {
  view: "quantities", layer: 0, head: 0, quantity: "", part: "both", moment: 0, show: "all", run: "this", beside: 0, fit: false,
  numbers: false, digits: false, of: "", side: "query", layers: "all",
  unfolded: "", walk: "", theme: "auto",
  learner: 0, sample: 0, half: "value", vector: "", lesson: "",  // in a page with an engine
  answer: 0, against: 1, effect: "probability",
  i: 0, j: 0, d: 0, n: 0, c: 0, r: 0, k: 0, w: 0,
};
export const state = { ...start };
export const pointer = { hover: null };  // places that replace the state's under a pointer
export const followers = [];    // called with the cursor when it moves
export const redrawn = [];      // called when the selected cell has changed, before followers
