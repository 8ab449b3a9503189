// Makes MathML of equations, lines of text in a scheme's registration: q_i.k_j / sqrt(d). Other text stays text.
import { dress, make, on_button_keys } from "./elements.js";
import { measured } from "./data.js";
import { update } from "./frame.js";

const math = (tag, attributes = {}, ...children) =>
  dress(document.createElementNS("http://www.w3.org/1998/Math/MathML", tag), attributes, ...children);
const row = (children) => children.length === 1 ? children[0] : math("mrow", {}, children);
const sign = (text, attributes) => math("mo", attributes, text);
// Fences are as tall as a line, or as a taller element inside.
const fenced = (open, inner, shut, attributes = {}) => {
  const tall = "mfrac, munder, munderover", is_tall = (each) => each.matches?.(tall) || each.querySelector?.(tall);
  const stretchy = String([inner].flat().some(is_tall));
  return math("mrow", attributes, sign(open, { form: "prefix", stretchy }), inner, sign(shut, { form: "postfix", stretchy }));
};
const gap = (width) => math("mspace", { width });

// ---- Words
const greek = { alpha: "\u03b1", beta: "\u03b2", gamma: "\u03b3", delta: "\u03b4", zeta: "\u03b6", eta: "\u03b7", theta: "\u03b8",
  kappa: "\u03ba", lambda: "\u03bb", mu: "\u03bc", pi: "\u03c0", rho: "\u03c1", sigma: "\u03c3", tau: "\u03c4", phi: "\u03c6", psi: "\u03c8",
  omega: "\u03c9", Delta: "\u0394", Lambda: "\u039b", Omega: "\u03a9" };
const signs = { "-": "\u2212", ".": "\u00b7", "*": "\u2299", "<=": "\u2264", ">=": "\u2265", "<-": "\u2190", "->": "\u2192" };
const large = { sum: "\u2211", prod: "\u220f" };
const around = { floor: "\u230a\u230b", ceil: "\u2308\u2309" };
const applied = ["ln", "log", "exp", "tril"];  // functions, also without parentheses around the argument
const relations = ["=", "<", ">", "<=", ">=", "<-", "->"], pairs = { "(": ")", "[": "]", "{": "}" };
const pattern = /(\s*)(?:([a-z]\w+=\w*)|(\d+(?:\.\d+)?(?:e[+-]?\d+)?)|([A-Za-z][A-Za-z0-9]*(?:_[a-z]{4}\w*)?)|(\.\.\.?|<=|>=|<-|->|\S))/g;
const tokens_of = (text) => [...text.matchAll(pattern)].map(([, space, option, number, word, other]) =>
  ({ text: option ?? number ?? word ?? other, option, number, word, spaced: space !== "" }));

// ---- Grammar: a list of sums of products of factors; throws at text that it cannot read
class Reader {
  constructor(tokens) {
    Object.assign(this, { tokens, at: 0, bars: 0, script: 0 });
  }
  get next() { return this.tokens[this.at]; }
  is(text, offset = 0) { return this.tokens[this.at + offset]?.text === text; }
  take(text) {
    if (!this.is(text)) throw new Error(`${text} expected`);
    return this.tokens[this.at++];
  }
  takes(text) { return this.is(text) && Boolean(this.take(text)); }

  // True of a word of prose. A symbol is next to an operator, or has an index or an argument.
  is_prose({ at } = this) {
    const [before, { word }, after, behind] = [at - 1, at, at + 1, at + 2].map((place) => this.tokens[place] ?? {});
    if (!word || word.length === 1 || /[A-Z0-9_]/.test(word) || word in greek || word in large) return false;
    if ([...applied, ...Object.keys(around)].includes(word) && this.starts_factor(at + 1)) return false;
    const binary = "+-*/".includes(after.text ?? " ") && (!after.spaced || behind.spaced);
    return !binary && !"+-*/.".includes(before.text ?? " ") && (after.spaced || !"_^([".includes(after.text ?? " "));
  }
  starts_factor(at) {
    const token = this.tokens[at];
    return Boolean(token) && (token.number || token.word ? !token.word || !this.is_prose({ at })
      : token.text === "|" ? !this.bars : ["(", "[", "..."].includes(token.text));
  }

  // Pieces between which a line may break: arrays of elements, and words.
  pieces(...ends) {
    const all = [], more = () => this.next && !ends.includes(this.next.text);
    while (more()) {
      const { text, option } = this.next;
      if (option) all.push(make("code", {}, this.take(text).text));
      else if (this.is_prose() || ",;:".includes(text)) all.push(this.take(text).text);
      else if (relations.includes(text)) {
        this.take(text);
        const [first, ...rest] = more() && !this.is_prose() ? this.sum() : [[]];
        all.push([sign(signs[text] ?? text, { form: "infix" }), ...first], ...rest);
      } else all.push(...this.sum());
    }
    return all;
  }
  inside(...ends) {
    const bars = this.bars;
    this.bars = 0;
    const is_stop = (piece) => piece === undefined || /^[,;:]$/.test(piece), is_words = (piece) => !is_stop(piece) && !Array.isArray(piece);
    const all = this.pieces(...ends).flatMap((piece, k, { [k + 1]: next }) => {
      if (is_stop(piece)) return sign(piece, { separator: "true", rspace: "0.3em" });
      const element = is_words(piece) ? math("mtext", {}, piece.textContent ?? piece) : row(piece);
      return !is_stop(next) && (is_words(piece) || is_words(next)) ? [element, gap("0.3em")] : element;
    });
    this.bars = bars;
    return row(all);
  }
  sum() {
    const all = [];
    do {
      const { text } = this.next, is_sign = text === "+" || text === "-";
      if (is_sign) this.take(text);
      const before = is_sign ? [sign(signs[text] ?? text, { form: all.length ? "infix" : "prefix" })] : [];
      all.push([...before, ...this.product()]);
    } while (this.is("+") || this.is("-"));
    return all;
  }
  // Reads a fraction at a stroke with spaces around it: the whole product before it over the factor after it.
  product() {
    let all = [this.factor()];
    for (;;) {
      if (this.is("/")) {
        const tall = this.take("/").spaced && !this.script, above = all.length > 1 ? row(all) : bare(all[0]);
        all = tall ? [math("mfrac", {}, above, bare(this.factor()))] : [...all, sign("/", { lspace: "0", rspace: "0" }), this.factor()];
      } else if (this.is(".") || this.is("*")) {
        all.push(sign(signs[this.take(this.next.text).text], { lspace: "0.1em", rspace: "0.1em" }), this.factor());
      } else if (this.starts_factor(this.at)) all.push(...(this.next.spaced ? [gap("0.2em")] : []), this.factor());
      else return all;
    }
  }
  factor(calls = true) {
    let base = this.atom(), below = [], above = [];
    const close = () => {
      if (below.length || above.length)
        base = math(`m${below.length ? "sub" : ""}${above.length ? "sup" : ""}`, {}, base, ...[below, above].filter((each) => each.length).map(row));
      below = [];
      above = [];
    };
    if (base.localName === "msub") [base, below] = [base.firstChild, [base.lastChild]];  // W1, with an index after it
    for (;;) {
      if (this.is("_")) below.push(this.scripted());
      else if (this.is("^")) above.push(this.scripted());
      else if (this.takes("'")) above.push(sign("\u2032"));
      else if (calls && !this.next?.spaced && (this.is("[") || this.is("("))) {
        close();
        base = row([base, this.group()]);
      } else {
        close();
        return base;
      }
    }
  }
  scripted() {
    const up = this.take(this.next.text).text === "^";
    ++this.script;
    const braces = this.is("{") || this.is("(") && up, end = pairs[this.next.text], word = this.next.word;
    let found;
    if (braces) {
      this.take(this.next.text);
      found = this.inside(end);
      this.take(end);
    } else if (!up && /^[a-z]{2}$/.test(word)) found = row([...this.take(word).text].map((letter) => math("mi", {}, letter)));
    else found = up ? this.factor(false) : this.atom();
    --this.script;
    return found;
  }
  group() {
    const open = this.take(this.next.text).text, inner = this.inside(pairs[open]);
    return fenced(open, inner, this.take(pairs[open]).text, { class: open === "(" ? "parentheses" : null });
  }
  atom() {
    const { text, number, word } = this.next ?? {};
    if (number) return math("mn", {}, this.take(text).text);
    if (word) return this.name(this.take(text).text);
    if (text === "|") {
      this.take("|");
      ++this.bars;
      const inner = this.sum();
      --this.bars;
      this.take("|");
      return fenced("|", inner.flat(), "|");
    }
    if (text === "...") return this.take(text) && math("mi", {}, "\u2026");
    if (text === "(" || text === "[") return this.group();
    throw new Error(`${text ?? "the end"} given where a symbol is expected`);
  }
  name(word) {
    if (large[word]) return this.large(large[word]);
    if (around[word] && this.starts_factor(this.at)) {
      const [open, shut] = around[word];
      return fenced(open, bare(this.factor()), shut);
    }
    if (word === "sqrt") return math("msqrt", {}, bare(this.group()));
    if (applied.includes(word) && this.starts_factor(this.at) && this.next.spaced) return row([math("mi", {}, word), gap("0.2em"), this.factor()]);
    const [, letters, digits] = /^(.*?)(\d*)$/.exec(word), symbol = greek[letters] ?? letters;
    const parts = /^d[A-Z]$/.test(symbol) ? [...symbol] : [symbol];
    const after = this.next?.spaced ? "" : this.next?.text, index = after === "_" ? this.tokens[this.at + 1].text : after;
    const quantity = this.script ? null : meaning_of(word, after === "_" ? index.length : index === "[" || index === "(" ? index : 0);
    const base = row(parts.map((part) => linked(math("mi", {}, part), quantity)));
    return digits ? math("msub", {}, base, math("mn", {}, digits)) : base;
  }
  large(symbol) {
    const base = sign(symbol, { largeop: "true", movablelimits: "false" });
    if (!this.takes("_")) return base;
    ++this.script;
    const braces = this.takes("{"), ends = [braces ? this.inside("..", "}") : this.atom()];
    if (this.takes("..")) ends.push(this.inside("}"));
    if (braces) this.take("}");
    --this.script;
    return math(ends.length > 1 ? "munderover" : "munder", {}, base, ends);
  }
}

// Drops the parentheses that a stroke or a root makes needless.
const bare = (element) => element.getAttribute("class") === "parentheses" ? element.children[1] : element;
const linked = (element, quantity) => !quantity ? element : dress(element, { class: "symbol", role: "link", tabindex: 0,
  "aria-label": `${element.textContent}: ${quantity}`, ...acts(() => update({ view: "quantities", show: "one", quantity })) });
const acts = (act) => ({ onclick: act, onkeydown: on_button_keys(act) });

// meaning_of returns the quantity of a symbol: its equation begins with the symbol, or it has that name. The kind of
// index must match: `x_ij` is no `x_t`, and `P[t]` no `P_ij`; only a capital may have none.
const meant = new Map(measured.flatMap(({ name, equation }) => {
  const [, symbol, below, index] = /^([A-Za-z]+)(?:_([a-z]+)|([[(])[^\])]*[\])])*\s*(?:=|,|$| {2}\()/.exec(equation ?? "") ?? [];
  const is_symbol = symbol && (symbol.length === 1 || symbol in greek);
  return [[name, { name }], ...(is_symbol ? [[symbol, { name, index: below?.length ?? index ?? 0 }]] : [])];
}));
function meaning_of(word, index) {
  const { name, index: known = index } = meant.get(word) ?? {};
  return known === index || word < "a" && !index ? name : null;
}

// Returns an equation as a line that breaks between its pieces, with a citation in parentheses at the end.
export function equation(text) {
  const [, body, source = ""] = /^(.*?)(?: {2}(\(.*\)))?$/.exec(text), line = make("span", { class: "equation", title: text });
  try {
    const reader = new Reader(tokens_of(body));
    reader.pieces().forEach((piece, k, { [k - 1]: before }) => {
      const is_math = Array.isArray(piece), between = is_math && Array.isArray(before) ? make("wbr") : k && !/^[,;:]$/.test(piece) ? " " : "";
      const element = is_math ? math("math", { displaystyle: "true" }, piece) : piece;
      if (is_math && element.querySelector(".symbol")) dress(element, { role: "group" });  // links inside are no mere presentation
      line.append(between, element);
    });
  } catch {
    line.append(make("code", {}, body));
  }
  if (source) line.append(" ", make("small", {}, source));
  return line;
}
