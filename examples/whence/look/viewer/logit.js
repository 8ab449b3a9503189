// View: what each part of the model adds to the logit of an answer, and what earlier layers would have answered.
import { acting_row, bar_cell, format, make, name_cell, note, right_cell, table_of, token_text } from "./elements.js";
import { state } from "./state.js";
import { data, decode, visible } from "./data.js";
import { check_line, number_cell, of_selection, stage, token_name, update } from "./frame.js";
import { answer_name, asked_after, percent } from "./answers.js";

const entry_at = (i) => data.logits.tokens.find(({ token }) => token === asked_after(i));
const within = (index, answers) => Math.min(index, answers.length - 1);

function parts_table(values) {
  const reach = Math.max(...values.map(({ difference }) => Math.abs(difference)));
  const lines = values.map(({ layer, name, one, other, difference }) => {
    const head = /^head (\d+)$/.exec(name), cells = [right_cell(layer ?? "\u2013"), name_cell(name),
      bar_cell(difference / (reach || 1)), ...[difference, one, other].map(number_cell)];
    const show = () => update({ view: "quantities", quantity: "pattern", layer, head: Number(head[1]) });
    return head ? acting_row(`part ${layer} ${name}`, show, cells) : make("tr", {}, cells);
  });
  return table_of(["layer", "part", "", "difference", "logit", "other"], lines, { class: "edits" });
}

function lens_table({ likeliest }, logits, shares, answers) {
  const lines = data.logits.stages.map((layer, k) => [name_cell(layer === null ? "embedding" : `layer ${layer}`),
    make("td", {}, answer_name(likeliest[k][0])), right_cell(percent(likeliest[k][1])),
    bar_cell(shares(k), 0), right_cell(percent(shares(k))), number_cell(logits(k))]);
  return table_of(["after", "it would say", "with", "", answers, "its logit"], lines);
}

function shown_parts(entry) {
  const { answers, token } = entry, count = data.logits.parts.length, all = decode(entry, "parts");
  const answer = within(state.answer, answers), against = within(state.against, answers);
  const values = data.logits.parts.map((part, k) => {
    const one = all[answer * count + k], other = all[against * count + k];
    return { ...part, one, other, difference: one - other };
  });
  const logits = decode(entry, "logits"), shares = decode(entry, "shares"), last = data.logits.stages.length - 1;
  const of_answer = (numbers) => (stage) => numbers[stage * answers.length + answer];
  const sum = values.reduce((so_far, { one }) => so_far + one, 0), size = values.reduce((so_far, { one }) => so_far + Math.abs(one), 0);
  const logit = of_answer(logits)(last), near = entry.bits === 64 ? 1e-9 : 1e-3;
  const choosers = ["answer", "against"].map((key, k) => {
    const select = make("select", { "data-focus": key, onchange: ({ target }) => update({ [key]: Number(target.value) }) },
      answers.map((text, index) => make("option", { value: index }, visible(text))));
    select.value = String([answer, against][k]);
    return make("label", {}, ["the logit of ", " less that of "][k], select);
  });
  return [
    make("h2", {}, "Where the answer after ", token_name(token), " comes from"),
    make("p", {}, choosers),
    note("The residual stream is a sum: the embedding, the outputs of all heads and MLPs, and biases. With later norms fixed " +
      "at this pass, a logit is a sum too. A part that all answers share moves no probability: the bars are differences. " +
      "A head\u2019s row leads to its pattern."),
    parts_table(values),
    check_line(Math.abs(sum - logit) <= near * size, "the parts add up", ` to ${format(sum, 6)}, the logit of the pass.`),
    make("h2", {}, "What each layer would have answered"),
    note("The last norm and the output, applied right after the embedding or a layer."),
    lens_table(entry, of_answer(logits), of_answer(shares), token_text(visible(answers[answer])))];
}

function draw_logit() {
  const container = make("div");
  stage.append(container);
  of_selection(() => container.replaceChildren(...shown_parts(entry_at(state.i))));
}

export const logit_view = {
  key: "logit", title: "Logit", group: "Evidence", wants: () => Boolean(data.logits),
  hint: "Look for the part that separates the two answers: replace it in a patch, and the answer should change.",
  controls: () => [],
  readout(at) {
    const entry = entry_at(at.i), last = entry.likeliest.at(-1);
    return ["After ", token_name(entry.token), " the model says ", answer_name(last[0]), ` ${percent(last[1])}.`];
  },
  draw: draw_logit,
};
