// The address keeps the state: #model=cope~seed=1&step=100&quantity=gates&i=9&j=3&edit=0:gates layer=0 = 0
import { lesson_of } from "./lessons.js";
import { learners, sizes } from "./learners.js";
import { start, state } from "./state.js";

// ---- Writing
const model_text = ({ options }) => [options.scheme, ...Object.keys(sizes)
  .filter((key) => options[key] !== sizes[key]).map((key) => `${key}=${options[key]}`)].join("~");

export function write_link() {
  const told = new URLSearchParams();
  for (const learner of learners) if (!state.lesson && !learner.label) told.append("model", model_text(learner));
  told.set("step", learners.map(({ step }) => step).join());
  for (const [key, value] of Object.entries(start)) {
    if (state[key] !== value && key !== "model") told.set(key, state[key]);
  }
  if (state.model) told.set("of", state.model);
  for (const { index, edits } of learners) for (const edit of edits) told.append("edit", `${index}:${edit}`);
  // Some viewers forbid it for local files; nothing depends on it.
  try { history.replaceState(null, "", `#${told}`); } catch { /* the address stays */ }
}

// ---- Reading: what is there, and a sentence about what makes no sense
const whole = (text) => /^\d{1,6}$/.test(text) ? Number(text) : undefined;
const among = (...words) => (text) => words.includes(text) ? text : undefined;
const short = (text) => text.length < 80 ? text : undefined;
const kinds = {
  layer: whole, head: whole, sample: whole, i: whole, j: whole, of: whole, slice: whole, row: whole, column: whole,
  part: among("value", "gradient"),
  theme: among("auto", "light", "dark"), quantity: short, vector: short,
  lesson: (text) => lesson_of(text) && text,
  step: (text) => /^\d{1,6}(,\d{1,6})*$/.test(text) ? text.split(",").map(Number) : undefined,
  model(text) {
    const [scheme, ...rest] = text.split("~"), options = { scheme };
    for (const [, key, value] of rest.map((each) => each.match(/^([a-z]+)=(.+)$/) ?? [])) {
      if (!(key in sizes) || !Number.isFinite(Number(value))) return undefined;
      options[key] = Number(value);
    }
    return scheme && options;
  },
  edit: (text) => /^[0-2]:./.test(text) ? { index: Number(text[0]), edit: text.slice(2) } : undefined,
};

export function read_link() {
  const link = { models: [], edits: [], state: {}, steps: [], ignored: [] };
  for (const [key, text] of new URLSearchParams(location.hash.slice(1))) {
    const value = Object.hasOwn(kinds, key) ? kinds[key](text) : undefined;
    const none = value === undefined || (key === "model" && link.models.length > 2);
    if (none) link.ignored.push(`${key}=${text}`.slice(0, 60));
    else if (key === "model" || key === "edit") link[`${key}s`].push(value);
    else if (key === "step") link.steps = value;
    else link.state[key === "of" ? "model" : key] = value;
  }
  return link;
}
