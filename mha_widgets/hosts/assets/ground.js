// Whether an explorer stands on a dark ground: what is really behind it tells, not what a theme is called.

// The first ancestor that paints a ground decides; where none does, the text of the page is light on dark.
function isDark(root) {
  if (matchMedia("print").matches) return false;
  let node = parentOf(root);
  const text = getComputedStyle(node ?? root).color;
  for (; node; node = parentOf(node)) {
    const { opacity, lightness } = read(getComputedStyle(node).backgroundColor);
    if (opacity >= 0.5) return lightness < 0.5;
  }
  return read(text).lightness >= 0.5;
}

const parentOf = (node) => node.parentElement ?? node.getRootNode().host; // out of a shadow tree as well

// Browsers write a computed colour as rgb(…), color(space …), or by its lightness first: lab(…), oklch(…).
function read(colour) {
  const [space, ...rest] = colour.match(/^[a-z]+|(?<=[\s(,/])-?[\d.]+(e-?\d+)?/g);
  const [one, two, three, opacity = 1] = rest.map(Number);
  const luminance = 0.2126 * one + 0.7152 * two + 0.0722 * three;
  if (space.startsWith("rgb")) return { opacity, lightness: luminance / 255 };
  if (space === "color") return { opacity, lightness: luminance };
  return { opacity, lightness: space.startsWith("ok") ? one : one / 100 };
}

// Marks the explorer with its ground, calls `changed` whenever that is another, and returns what ends the watch.
function watchGround(root, changed) {
  const look = () => {
    const dark = isDark(root), ground = dark ? "dark" : "light";
    if (root.dataset.ground === ground) return;
    root.dataset.ground = ground;
    changed(dark);
  };
  // Themes switch by an attribute of any ancestor, by a style sheet, or with the computer; some fade.
  const switches = new MutationObserver(look);
  for (let node = parentOf(root); node; node = parentOf(node)) switches.observe(node, { attributes: true });
  switches.observe(document.head, { attributes: true, childList: true, subtree: true });
  const media = ["(prefers-color-scheme: dark)", "print"].map((query) => matchMedia(query));
  media.forEach((query) => query.addEventListener("change", look));
  document.addEventListener("transitionend", look);
  document.addEventListener("load", look, true); // a style sheet has arrived
  look();
  return () => {
    switches.disconnect();
    media.forEach((query) => query.removeEventListener("change", look));
    document.removeEventListener("transitionend", look);
    document.removeEventListener("load", look, true);
  };
}
