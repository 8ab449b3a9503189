// Pictures as files: maps as PNG, a curve as SVG with the page's style in it.
import { draw, make } from "./elements.js";
import { theme } from "./colours.js";
import { margin, sized, title_of } from "./maps.js";

const save = (href, name) => make("a", { href, download: name.replace(/[^\w.]+/g, "-") }).click();

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

// The maps of one model below each other, with their names, as one picture.
export function save_maps(maps, title) {
  const pairs = maps.filter(({ part }) => part === "value").map((map) => [map, maps.find((each) =>
    each.meant.quantity === map.meant.quantity && each.part === "gradient")]);
  const width = Math.max(...maps.map(({ g }) => g.width)) * 2 + 40, lines = pairs.map(([{ g }]) => g.height + 50);
  const canvas = make("canvas"), ratio = maps[0].g.ratio;
  const context = sized(canvas, width, 40 + lines.reduce((sum, each) => sum + each, 0), ratio);
  context.fillStyle = theme.page;
  context.fillRect(0, 0, canvas.width, canvas.height);
  const write = (text, x, y, font) => {
    Object.assign(context, { font, fillStyle: theme.ink });
    context.fillText(text, x, y);
  };
  write(title, 12, 22, "600 13px system-ui, sans-serif");
  pairs.forEach((pair, row) => pair.forEach((map, column) => {
    const x = 12 + column * (width / 2 - 4), y = 50 + lines.slice(0, row).reduce((sum, each) => sum + each, 0);
    write(title_of(map.meant.quantity, map.part), x, y, "12px system-ui, sans-serif");
    const { canvas: { width: wide, height: tall } } = map;
    context.drawImage(map.canvas, x - margin, y + 6, wide / ratio, tall / ratio);
  }));
  save(canvas.toDataURL(), `${title}.png`);
}
