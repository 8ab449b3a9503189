// "save" at the picture under the pointer or with the focus: a map as PNG, all else as SVG with the page's style.
import { button, draw, make } from "./elements.js";

const save_button = button("save", null, () => save(saved.picture), { class: "save", hidden: true });
const saved = { picture: null };

// Styles depend on the elements around a picture: its file has the classes of all of them.
function file_text(picture) {
  const copy = picture.cloneNode(true), classes = [...picture.classList];
  for (let each = picture.parentElement; each; each = each.parentElement) classes.push(...each.classList);
  copy.setAttribute("class", classes.join(" "));
  copy.dataset.theme = document.documentElement.dataset.theme;
  const style = [...document.querySelectorAll("style")].map((each) => each.textContent).join("\n");
  copy.prepend(draw("style", {}, `${style}\nsvg { background: var(--page); }`));
  return new XMLSerializer().serializeToString(copy);
}

function save(picture) {
  const is_map = picture.tagName === "CANVAS", title = picture.getAttribute("aria-label") ?? document.title;
  const name = title.split(/[:;]/)[0].replace(/[^\w.]+/g, "-");
  const href = is_map ? picture.toDataURL()
    : URL.createObjectURL(new Blob([file_text(picture)], { type: "image/svg+xml" }));
  make("a", { href, download: `${name}.${is_map ? "png" : "svg"}` }).click();
}

// Puts "save" below the picture's right end, out of the way.
function offer({ target }) {
  const picture = target.closest?.("canvas[aria-label], svg[aria-label]");
  if (!picture) return;
  const { right, bottom } = picture.getBoundingClientRect();
  saved.picture = picture;
  save_button.hidden = false;
  save_button.style.left = `${Math.min(right, innerWidth) + scrollX - save_button.offsetWidth}px`;
  save_button.style.top = `${bottom + scrollY}px`;
}

export function offer_saving() {
  document.body.append(save_button);
  for (const event of ["pointerover", "focusin"]) document.addEventListener(event, offer);
}
