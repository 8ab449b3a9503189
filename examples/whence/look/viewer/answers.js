// The model's answers, above the text: the probability of the wanted answer at each token with a question, and the
// likeliest answers at the selected token.
import { counted, draw, format, make, svg_text, token_text } from "./elements.js";
import { followers, state } from "./state.js";
import { longest, run_named, tokens, visible } from "./data.js";
import { above, drawn_above, follow_pointer, single_run, token_name } from "./frame.js";
import { chart, grid, index_axis } from "./curves.js";

export const predictions = (run = single_run()) => run_named(run).predictions;
const asked_in = (all) => all.flatMap((each, t) => each ? [t] : []);
export const asked = () => asked_in(predictions());
export const is_right = ({ wanted, likeliest }) => wanted[0] === likeliest[0][0];
export const percent = (share) => `${format(100 * share, share < 1 && share > 0.9995 ? 5 : 3)} %`;
export const answer_name = (text) => make("b", { class: "name" }, token_text(visible(text)));

// Returns the token whose answer the numbers at t affect: t, or the next token with a question.
export const asked_after = (t) => asked().find((each) => each >= t) ?? asked().at(-1);

function words_at(t) {
  const all = predictions(), here = all[t], of = asked_in(all), right = of.filter((each) => is_right(all[each])).length;
  if (!here) {
    const all_of = `${of.length} of ${tokens.length} tokens have a question, ${right} answered right; none after `;
    return [all_of, token_name(t), "."];
  }
  const { wanted, likeliest, loss } = here;
  return ["After ", token_name(t), " the answer is ", answer_name(wanted[0]), ". The model says ",
    likeliest.map(([text, share], k) => [k ? ", " : "", answer_name(text), ` ${percent(share)}`]),
    is_right(here) ? ": right" : make("b", { class: "wrong" }, ": wrong"), `, loss ${format(loss, 3)}.`].flat(2);
}

// A column for each token. Its height is the probability of the wanted answer; its ground shows where another answer is
// likelier. Tokens are below their columns, on as many lines as they need.
const left = 58, most_lines = 4;
function strips_of(width) {
  const fit = Math.max(1, Math.floor((width - left - 8) / (longest(tokens) * 6.8 + 5)));
  const lines = Math.ceil(tokens.length / fit), across = lines <= most_lines ? Math.ceil(tokens.length / lines) : tokens.length;
  const strips = counted(Math.ceil(tokens.length / across)).map((line) => strip_from(line * across, across, width));
  followers.push(({ i }) => strips.forEach(({ follow }) => follow(i)));
  return strips.map(({ picture }) => picture);
}

function strip_from(from, across, width) {
  const all = predictions(), until = Math.min(tokens.length, from + across);
  const frame = chart({ label: "probability of the wanted answer at each token that is asked", width, height: 84, left, right: 8, top: 6,
    bottom: 38, x: [from - 0.5, from + across - 0.5], y: [0, 1] });
  const step = frame.x_of(1) - frame.x_of(0), height = frame.floor - frame.top, wide = Math.max(1, Math.min(24, step - (step > 3 ? 1 : 0)));
  const box = (t) => ({ x: frame.x_of(t) - wide / 2, width: wide });
  grid(frame, [0, 1]);
  frame.add(svg_text("tick end", left - 6, (frame.top + frame.floor) / 2 + 4, "p(right)"),
    ...counted(until - from).map((k) => k + from).filter((t) => all[t]).flatMap((t) => {
      const high = Math.max(1.5, height * all[t].wanted[1]);
      return [draw("rect", { class: is_right(all[t]) ? "asked" : "asked wrong", y: frame.top, height, ...box(t) }),
        draw("rect", { class: "share", y: frame.floor - high, height: high, ...box(t) })];
    }));
  index_axis(frame, tokens, until, "", from);
  const here = draw("rect", { class: "here", y: frame.top, height: frame.floor - frame.top + 22, width: Math.max(1.5, step) });
  frame.add(here);
  follow_pointer(frame.picture, (event) => {
    const i = Math.round(frame.at(event).x);
    return i >= from && i < until ? { i } : null;
  });
  return { picture: frame.picture, follow(i) {
    here.style.display = i >= from && i < until ? "" : "none";
    here.setAttribute("x", frame.x_of(i) - step / 2);
  } };
}

drawn_above.push(() => {
  above.hidden = !asked().length || state.view !== "text";
  if (above.hidden) return;
  const words = make("p", { role: "status" });
  above.replaceChildren(...strips_of(Math.max(240, above.clientWidth)), words);
  followers.push(({ i }) => words.replaceChildren(...words_at(i)));
});
