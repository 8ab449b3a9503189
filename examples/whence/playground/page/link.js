// The address keeps, in addition to the state, the models, their steps and their edits:
// #view=playground&i=9&j=3&model=cope~seed=1&step=100&edit=0:gates layer=0 = 0
import { start, state } from "./state.js";
import { told_besides } from "./frame.js";
import { learners, sizes } from "./learners.js";

// ---- Writing
const model_text = ({ options }) => [options.scheme, ...Object.keys(sizes)
  .filter((key) => options[key] !== sizes[key]).map((key) => `${key}=${options[key]}`)].join("~");
told_besides.push(() => !learners.length ? [] : [
  ...learners.filter(({ label }) => !state.lesson && !label).map((learner) => ["model", model_text(learner)]),
  ["step", learners.map(({ step }) => step).join()],
  ...learners.flatMap(({ index, edits }) => edits.map((edit) => ["edit", `${index}:${edit}`])),
]);

// ---- Reading: known keys, and those to ignore
const kinds = {
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
  const link = { models: [], edits: [], steps: [], ignored: [], text: location.hash.slice(1) };
  for (const [key, text] of new URLSearchParams(link.text)) {
    if (key === "view") link.view = text;
    if (Object.hasOwn(start, key)) continue;
    const value = Object.hasOwn(kinds, key) ? kinds[key](text) : undefined;
    if (value === undefined || (key === "model" && link.models.length > 2)) link.ignored.push(`${key}=${text}`.slice(0, 60));
    else if (key === "step") link.steps = value;
    else link[`${key}s`].push(value);
  }
  return link;
}
