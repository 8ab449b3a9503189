// What the model answers, above every view: the probability of the wanted answer at each token that is asked, and the
// likeliest answers at the selected one.
import { draw, format, make, token_text } from "./elements.js";
import { followers, state } from "./state.js";
import { run_named, tokens, visible } from "./data.js";
import { above, drawn_above, follow_pointer, single_run, token_name } from "./frame.js";

export const predictions = (run = single_run()) => run_named(run).predictions;
const asked_in = (all) => all.flatMap((each, t) => each ? [t] : []);
export const asked = () => asked_in(predictions());
export const is_right = ({ wanted, likeliest }) => wanted[0] === likeliest[0][0];
export const percent = (share) => `${format(100 * share, 3)} %`;
export const answer_name = (text) => make("b", { class: "name" }, token_text(visible(text)));

// The token whose answer the numbers at token t bear on: t, or the next one after it that is asked.
export const asked_after = (t) => asked().find((each) => each >= t) ?? asked().at(-1);

function words_at(t) {
  const all = predictions(), here = all[t], of = asked_in(all), right = of.filter((each) => is_right(all[each])).length;
  if (!here) {
    const all_of = `Asked after ${of.length} of ${tokens.length} tokens, right after ${right}; not after `;
    return [all_of, token_name(t), "."];
  }
  const { wanted, likeliest, loss } = here;
  return ["After ", token_name(t), " the answer is ", answer_name(wanted[0]), ". The model says ",
    likeliest.map(([text, share], k) => [k ? ", " : "", answer_name(text), ` ${percent(share)}`]),
    is_right(here) ? ": right" : make("b", { class: "wrong" }, ": wrong"), `, loss ${format(loss, 3)}.`].flat(2);
}

// A column for each token: as high as the wanted answer is likely, on a ground that says where it is not the likeliest.
function strip_of(width) {
  const all = predictions(), step = width / tokens.length, height = 32;
  const column = (each, t) => {
    const box = { x: t * step, width: Math.max(1, step - (step > 3 ? 1 : 0)) };
    const high = Math.max(1.5, height * each.wanted[1]);
    return [draw("rect", { class: is_right(each) ? "asked" : "asked wrong", y: 0, height, ...box }),
      draw("rect", { class: "share", y: height - high, height: high, ...box })];
  };
  const here = draw("rect", { class: "here", x: state.i * step, y: 0, width: Math.max(1.5, step), height });
  const label = "probability of the wanted answer at each token that is asked";
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    all.map((each, t) => each ? column(each, t) : []), here);
  follow_pointer(picture, (event) => {
    const box = picture.getBoundingClientRect(), i = Math.floor((event.clientX - box.left) / box.width * tokens.length);
    return i >= 0 && i < tokens.length ? { i } : null;
  });
  followers.push(({ i }) => here.setAttribute("x", i * step));
  return picture;
}

drawn_above.push(() => {
  above.hidden = !asked().length;
  if (above.hidden) return;
  const words = make("p", { role: "status" });
  above.replaceChildren(strip_of(Math.max(240, above.clientWidth)), words);
  followers.push(({ i }) => words.replaceChildren(...words_at(i)));
});
