// Pictures as files: maps as PNG, a curve as SVG with the page's style in it.
import { draw, make } from "./elements.js";

const save = (href, name) => make("a", { href, download: name.replace(/[^\w.]+/g, "-") }).click();

export const save_canvas = (canvas, name) => save(canvas.toDataURL(), `${name}.png`);

export function save_svg(picture, name) {
  const copy = picture.cloneNode(true), { width, height } = picture.viewBox.baseVal;
  Object.assign(copy.dataset, { theme: document.documentElement.dataset.theme });
  for (const [key, value] of [["xmlns", "http://www.w3.org/2000/svg"], ["width", 2 * width], ["height", 2 * height]]) {
    copy.setAttribute(key, value);
  }
  const style = [...document.querySelectorAll("style")].map((each) => each.textContent).join("\n");
  copy.prepend(draw("style", {}, `${style}\nsvg { background: var(--page); }`));
  const file = new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
  save(URL.createObjectURL(file), `${name}.svg`);
}
