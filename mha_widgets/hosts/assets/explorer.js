// Brings the explorers on a page to life. It runs inside one function, after ground.js.
const here = document.currentScript && document.currentScript.src;
let loading = null;

function plotly() {
  if (window.Plotly) return Promise.resolve();
  loading ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = new URL("plotly.min.js", here || document.baseURI);
    script.onload = done;
    script.onerror = () => failed(new Error(`${script.src} could not be loaded`));
    document.head.append(script);
  });
  return loading;
}

// The view of a state, put together from the places that exist in it.
function assemble(data, state) {
  const view = {};
  const cases = data.patterns.map(([needed, cases]) =>
    cases[needed.reduce((index, axis) => index * data.controls[axis][1] + state[axis], 0)]);
  for (const [path, pattern, ids] of data.places) {
    const id = ids[cases[pattern]];
    if (id < 0) continue;
    let node = view;
    path.forEach((key, depth) => {
      if (depth === path.length - 1) node[key] = data.values[id];
      else node = node[key] ??= typeof path[depth + 1] === "number" ? [] : {};
    });
  }
  return view;
}

function coloured(value, colours, key = "") {
  if (typeof value === "string") return value.startsWith("--mha-") && key.includes("color") ? colours(value) : value;
  if (Array.isArray(value)) {
    return value.length && (key.includes("color") || isObject(value[0])) ? value.map((v) => coloured(v, colours, key)) : value;
  }
  if (!isObject(value) || key === "meta") return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v, colours, k)]));
}
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

function fitted(layout, width) {
  const { wide, narrow_below: below, narrow } = layout.meta ?? {};
  if (!(width < wide)) return { ...layout, width };
  if (width >= below) return { ...layout, width, height: layout.height * width / wide };
  const merged = { ...layout, width };
  for (const [key, value] of Object.entries(narrow)) {
    merged[key] = isObject(value) ? { ...layout[key], ...value } : value;
  }
  return merged;
}

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function tables(figure) {
  const made = [];
  for (const trace of figure.data) {
    const { cells, word } = trace.meta ?? {};
    if (word) { // it marks cells of the map before it
      trace.x.forEach((column, i) => { made.at(-1).cells[trace.y[i]][column] = word; });
    } else if (cells) { // the cells themselves, or where they are
      made.push({ ...trace.meta, cells: (typeof cells === "string" ? trace[cells] : cells).map((row) => row.map(written)) });
    }
  }
  return made.map(({ name, rows, columns, cells }) => {
    const table = element("table");
    table.createCaption().textContent = name;
    const top = table.createTHead().insertRow();
    top.append(element("td"), ...columns.map((text) => element("th", text, { scope: "col" })));
    const body = table.createTBody();
    rows.forEach((text, i) => {
      body.insertRow().append(element("th", text, { scope: "row" }), ...cells[i].map((cell) => element("td", cell)));
    });
    return table;
  });
}
const written = (cell) => {
  if (typeof cell !== "number") return cell ?? "";
  const short = Number(cell.toPrecision(4)), size = Math.abs(short);
  const text = size && size < 1e-4 ? short.toExponential(1) : size < 1e4 ? String(short) : short.toExponential();
  return text.replace(/(?<=e.)(?=\d$)/, "0").replaceAll("-", "−"); // as Python writes them
};

function start(root) {
  const part = (name) => root.querySelector(`.mha-${name}`);
  const data = JSON.parse(part("data").textContent);
  const form = part("controls"), host = part("figure");
  let view = null, failure = "";

  const inputs = (name) => [...form.elements].filter((input) => input.name === name);
  const position = (name) => {
    const [first, ...rest] = inputs(name);
    if (first.type === "checkbox") return Number(first.checked);
    return Number(first.type === "radio" ? [first, ...rest].find((input) => input.checked).value : first.value);
  };

  function show() {
    const next = assemble(data, data.controls.map(([name]) => position(name)));
    report(next.error ?? failure);
    if (next.error) return;
    view = next;
    part("facts").replaceChildren(...(view.facts ?? []).map((fact) => {
      const item = element("li");
      item.append(...fact.map((word) => typeof word === "string" ? word : element("b", word[0], { class: `mha-${word[1]}` })));
      return item;
    }));
    part("code").querySelector("code").textContent = view.code.join("\n");
    for (const [name] of data.controls) disable(name, view.disabled?.[name]);
    if (part("table").open) fillTable();
    draw();
  }

  function report(message) {
    part("error").hidden = !message;
    part("error").textContent = message;
  }

  function disable(name, reason) {
    for (const input of inputs(name)) input.disabled = Boolean(reason);
    const control = inputs(name)[0].closest(".mha-control");
    control.dataset.help ??= control.title;
    control.title = reason ?? control.dataset.help;
    control.classList.toggle("mha-disabled", Boolean(reason));
  }

  const fillTable = () => part("table").querySelector("div").replaceChildren(...tables(view.figure));

  function draw() {
    const width = host.clientWidth, layout = fitted(view.figure.layout, width);
    host.style.minHeight = `${layout.height}px`;
    if (!window.Plotly || !width) return;
    const style = getComputedStyle(root);
    const colours = (role) => style.getPropertyValue(role).trim();
    // Not react: where it narrows an axis, it goes on from what it did to the axis before.
    const drawn = coloured({ data: view.figure.data, layout }, colours);
    window.Plotly.newPlot(host, drawn.data, drawn.layout, { displayModeBar: false, doubleClick: false });
  }

  form.addEventListener("input", (event) => {
    const words = event.target.type === "range" && JSON.parse(event.target.closest("label").querySelector("script").textContent);
    if (words) {
      const word = words[event.target.value];
      event.target.setAttribute("aria-valuetext", word);
      event.target.nextElementSibling.textContent = word;
    }
    show();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  part("table").addEventListener("toggle", fillTable);
  part("copy").addEventListener("click", () => copy(part("code").querySelector("code"), part("copy")));
  let width = host.clientWidth;
  new ResizeObserver(() => {
    if (host.clientWidth !== width) { width = host.clientWidth; draw(); }
  }).observe(host);
  show();
  watchGround(root, draw);
  new IntersectionObserver((entries, observer) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    plotly().then(draw, (error) => {
      failure = `The figure can't be drawn: ${error.message}. The numbers are in the table below.`;
      report(failure);
    });
  }, { rootMargin: "400px" }).observe(root);
}

async function copy(source, button) {
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch { // a page opened from disk may have no clipboard to write to
    getSelection().selectAllChildren(source);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = words; }, 1500);
}

const begin = () => document.querySelectorAll(".mha-explorer").forEach((root) => {
  if (!root.dataset.started) { root.dataset.started = "yes"; start(root); }
});
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
else begin();
