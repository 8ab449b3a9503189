// The model's answers at tokens with a question, and words for them.
import { format, loss_text, make, token_text } from "./elements.js";
import { run_named, tokens, visible } from "./data.js";
import { single_run, token_name } from "./frame.js";

export const predictions = (run = single_run()) => run_named(run).predictions;
const asked_in = (all) => all.flatMap((each, t) => each ? [t] : []);
export const asked = () => asked_in(predictions());
export const is_right = ({ wanted, likeliest }) => wanted[0] === likeliest[0][0];
export const percent = (share) => `${format(100 * share, share < 1 && share > 0.9995 ? 5 : 3)} %`;
export const answer_name = (text) => make("b", { class: "name" }, token_text(visible(text)));

// Returns the token whose answer the numbers at t affect: t, or the next token with a question.
export const asked_after = (t) => asked().find((each) => each >= t) ?? asked().at(-1);

export function words_at(t) {
  const all = predictions(), here = all[t], of = asked_in(all), right = of.filter((each) => is_right(all[each])).length;
  if (!here) {
    const all_of = `${of.length} of ${tokens.length} tokens have a question, ${right} answered right; none after `;
    return [all_of, token_name(t), "."];
  }
  const { wanted, likeliest, loss } = here;
  return ["After ", token_name(t), " the answer is ", answer_name(wanted[0]), ". The model says ",
    likeliest.map(([text, share], k) => [k ? ", " : "", answer_name(text), ` ${percent(share)}`]),
    is_right(here) ? ": right" : make("b", { class: "wrong" }, ": wrong"), `, loss ${loss_text(loss, 3)}.`].flat(2);
}
