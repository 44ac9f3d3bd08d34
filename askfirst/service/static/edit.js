// Editing in place: a field replaces the value in its row, with a word-by-word difference and a button to put it back.

const form = document.getElementById("answer");

// The difference between two texts.

const parts = (text) => text.match(/\p{Script=Han}|[\p{L}\p{N}_.]+|\s+|[^\p{L}\p{N}\s]/gu) ?? [];

// The words of both texts, without the equal lines at the beginning and at the end.
function differing(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  while (a.length && a[0] === b[0]) a.shift(), b.shift();
  while (a.length && a.at(-1) === b.at(-1)) a.pop(), b.pop();
  return [parts(a.join("\n")), parts(b.join("\n"))];
}

function difference(before, after) {
  const [a, b] = differing(before, after), place = document.createDocumentFragment();
  if (a.length * b.length > 250000) return place;
  const most = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      most[i][j] = a[i] === b[j] ? most[i + 1][j + 1] + 1 : Math.max(most[i + 1][j], most[i][j + 1]);
  const put = (tag, text) => {
    if (place.lastChild?.localName !== tag) place.append(document.createElement(tag));
    place.lastChild.append(text);
  };
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j]) put("span", (i++, b[j++]));
    else if (i < a.length && (j >= b.length || most[i + 1][j] >= most[i][j + 1])) put("del", a[i++]);
    else put("ins", b[j++]);
  }
  return place;
}

// The original and the current text of a field.

const inputs = (row) => [...row.querySelectorAll("[name^='arg.']:not([type=hidden])")];
const original = (it) => {
  if (it.options) return (it.querySelector("[data-was]") ?? it.options[0]).textContent;
  if (it.type === "radio") return "was" in it.dataset ? it.parentNode.textContent : "";
  return it.dataset.was ?? it.defaultValue;
};
const current = (it) => {
  if (it.options) return it.selectedOptions[0].textContent;
  if (it.type === "radio") return it.checked ? it.parentNode.textContent : "";
  return it.value;
};

function edited() {
  for (const row of form.querySelectorAll("[data-arg]")) {
    const was = row.querySelector("[data-was]:not([name], option)"), fields = inputs(row);
    if (!was) continue;
    const changed = fields.filter((it) => original(it) !== current(it));
    was.hidden = !changed.length && !("tree" in row.dataset);
    if (!changed.length) continue;
    const said = (of) => changed.map(of).filter(Boolean).join("\n");
    was.querySelector("[data-diff]").replaceChildren(changed[0].type === "password" ? "" : difference(said(original), said(current)));
  }
  for (const gutter of form.querySelectorAll(".gutter")) {
    const lines = gutter.nextElementSibling.value.split("\n").length;
    gutter.textContent = Array.from({ length: lines }, (_, at) => at + 1).join("\n");
  }
  verb();
}

// The label of the button, from the template of `verb_pieces` (edits.py), with the values as they are typed.

function verb() {
  const go = form.querySelector("[data-verb]");
  if (!go) return;
  go.dataset.plain ??= go.textContent;
  const said = JSON.parse(go.dataset.verb).map(([text, name]) => {
    const it = name && form.elements[name];
    if (!it || !it.value || original(it) === current(it)) return text;
    const unit = it.nextElementSibling?.textContent, number = Number(it.value.replaceAll(",", ""));
    if (!unit || !number) return current(it);
    return `${number.toLocaleString("en-US", { minimumFractionDigits: original(it).split(".")[1]?.length ?? 0 })} ${unit}`;
  }).join("");
  const small = /^\p{Lu}\p{Ll}/u.test(said) ? said[0].toLowerCase() + said.slice(1) : said;
  const changed = form.querySelector("[data-was]:not([name], option):not([hidden])");
  go.textContent = changed && said.length <= 24 ? go.dataset.check.replace("{verb}", () => small) : go.dataset.plain;
}

form.addEventListener("click", (event) => {
  const row = event.target.closest("[data-putback]")?.closest("[data-arg]");
  if (!row || "tree" in row.dataset) return; // the server puts back a tree
  event.preventDefault();
  for (const it of inputs(row)) {
    if (it.type === "radio") it.checked = "was" in it.dataset;
    else if (it.options) for (const each of it.options) each.selected = each.textContent === original(it);
    else it.value = original(it);
  }
  lists(row);
  edited();
  if (row.closest("dd")) close(row);
});

// A list of lines as one field for each line, with Add and Remove. The hidden textarea of lines is what is posted.

function lists(within) {
  for (const lines of within.querySelectorAll("[data-items]")) {
    const place = document.createElement("div"), add = button(lines.dataset.add), label = lines.labels[0].textContent.trim();
    const each = () => [...place.querySelectorAll("input")];
    const name = () => each().forEach((it, at) => {
      it.setAttribute("aria-label", `${label} ${at + 1}`);
      it.nextSibling.setAttribute("aria-label", `${lines.dataset.remove} ${at + 1}`);
    });
    const write = () => {
      lines.value = each().map((it) => it.value).join("\n");
      name();
      lines.dispatchEvent(new Event("input", { bubbles: true }));
    };
    const put = (text) => {
      const row = document.createElement("div"), field = document.createElement("input"), remove = button(lines.dataset.remove);
      row.className = "unit";
      field.value = text;
      field.dir = "auto";
      field.addEventListener("input", write);
      remove.addEventListener("click", () => { row.remove(); write(); (each().at(-1) ?? add).focus(); });
      row.append(field, remove);
      add.before(row);
      return field;
    };
    place.dataset.list = "";
    place.append(add);
    add.addEventListener("click", () => { const field = put(""); write(); field.focus(); });
    lines.parentNode.querySelector("[data-list]")?.remove();
    if (lines.value) lines.value.split("\n").forEach(put);
    lines.after(place);
    lines.hidden = true;
    name();
  }
}

function button(text) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  return made;
}

function begin(within) {
  for (const row of within.querySelectorAll("[data-changed]:has([name$='.base'])")) row.dataset.tree = "";
  lists(within);
  edited();
}

// Open and close a field in its row. The page with the fields is fetched once.

let fields = null, bar = null;
export async function open(pencil) {
  fields ??= new DOMParser().parseFromString(await (await fetch(pencil.href, { cache: "no-store" })).text(), "text/html");
  const row = place(fields.querySelector(`[data-arg="${pencil.dataset.pencil}"]`));
  for (const other of fields.querySelectorAll("[data-arg][data-changed]")) place(other);
  if (!bar) {
    bar = document.getElementById("decide");
    bar.replaceWith(document.adoptNode(fields.getElementById("decide")));
    form.dataset.edits = form.dataset.drafts = "";
    history.replaceState(null, "", pencil.href.split("#")[0]);
    turned();
  }
  begin(row);
  (row.querySelector("[data-list] input") ?? inputs(row).find((it) => !it.hidden))?.focus();
}

function place(field) {
  const pencil = form.querySelector(`[data-pencil="${field.dataset.arg}"]`), row = pencil?.closest("dl > div");
  if (!row || row.querySelector("[data-arg]")) return field;
  const value = row.querySelector("dd");
  const shown = document.createElement("div");
  shown.append(...value.childNodes);
  shown.hidden = pencil.hidden = true;
  value.append(shown, document.adoptNode(field));
  row.classList.add("open");
  row.closest("details")?.setAttribute("open", ""); // many arguments are folded
  const label = field.querySelector("label, legend");
  if (label) label.className = "aside";
  return field;
}

function close(row) {
  const value = row.closest("dd"), shown = value.firstChild, pencil = value.parentNode.querySelector("[data-pencil]");
  fields.body.append(row);
  value.replaceChildren(...shown.childNodes);
  value.parentNode.classList.remove("open");
  pencil.hidden = false;
  pencil.focus();
  if (form.querySelector("[data-arg]")) return;
  document.getElementById("decide").replaceWith(bar);
  bar = fields = null;
  history.replaceState(null, "", location.href.replace("&edit=1", ""));
  turned();
}

function turned() {
  dispatchEvent(new Event("resize"));
  document.dispatchEvent(new Event("settle"));
}

form.addEventListener("input", edited);
addEventListener("pageshow", () => { if ("edits" in form.dataset) begin(form); });
if ("edits" in form.dataset) begin(form);
