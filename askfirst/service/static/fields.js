// Fields: conditions, drafts, counters, what was changed, and how many items are chosen. The server decides it all again.

const words = JSON.parse(document.body.dataset.words ?? "{}");
const fill = (text, facts) => text.replace(/\{(\w+)\}/g, (_, name) => facts[name]);
const form = document.getElementById("answer");

// Fields that depend on others come and go at once.

const tests = {
  eq: (value, other) => value.includes(String(other)),
  neq: (value, other) => !value.includes(String(other)),
  in: (value, others) => Array.isArray(others) && others.some((each) => value.includes(String(each))),
  gt: (value, other) => value.length > 0 && compare(value[0], other) > 0,
  lt: (value, other) => value.length > 0 && compare(value[0], other) < 0,
};

function compare(value, other) {
  const [a, b] = typeof other === "number" ? [Number(value), other] : [value, String(other)];
  return a > b ? 1 : a < b ? -1 : 0;
}

function reveal() {
  for (const field of form.querySelectorAll("[data-when]")) {
    const { field: key, operator, value } = JSON.parse(field.dataset.when);
    const asked = form.querySelector(`[data-field="${CSS.escape(key)}"]`);
    if (!asked) continue;
    const given = new FormData(form).getAll(`f.${key}`).map(String).filter((each) => each.trim() !== "");
    field.hidden = field.disabled = asked.disabled || !tests[operator](given, value);
  }
}

// Choosing: how many, all or none, and a search.

function choose() {
  const boxes = [...form.querySelectorAll("[data-choose] input[type=checkbox]")];
  const go = form.querySelector("#go");
  const picked = boxes.filter((box) => box.checked).length;
  const head = form.querySelector("[data-choose] [data-count]");
  if (head && boxes.length) head.textContent = fill(head.dataset.count, { n: picked });
  if (!go?.dataset.nothing) return;
  const any = boxes.length ? picked : form.querySelectorAll("input[type=radio]:checked").length;
  go.dataset.plain ??= go.textContent;
  go.setAttribute("aria-disabled", String(!any));
  go.dataset.why = go.dataset.nothing;
  const some = go.dataset.some ? fill(picked === boxes.length ? go.dataset.every : go.dataset.some, { n: picked }) : go.dataset.plain;
  go.textContent = any ? some : go.dataset.nothing;
}

function chooser() {
  for (const each of form.querySelectorAll("[data-all], [data-search]")) each.hidden = false;
  for (const each of form.querySelectorAll("[data-plain-only]")) each.hidden = true;
  form.addEventListener("click", (event) => {
    const pick = event.target.closest("[data-pick]")?.dataset.pick;
    if (!pick) return;
    for (const box of form.querySelectorAll("[data-choose] input[type=checkbox]")) box.checked = pick === "all";
    choose();
  });
  form.querySelector("[data-search]")?.addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const item of form.querySelectorAll(".rows .item")) item.hidden = !item.textContent.toLowerCase().includes(wanted);
  });
}

// Editing: what is changed, word by word, and the way back.

const parts = (text) => text.match(/\p{Script=Han}|[\p{L}\p{N}_.]+|\s+|[^\p{L}\p{N}\s]/gu) ?? [];

function difference(before, after) {
  const a = parts(before), b = parts(after), place = document.createDocumentFragment();
  if (a.length * b.length > 250000) return place;
  const most = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      most[i][j] = a[i] === b[j] ? most[i + 1][j + 1] + 1 : Math.max(most[i + 1][j], most[i][j + 1]);
  const put = (tag, text) => {
    const last = place.lastChild;
    if (last?.nodeName.toLowerCase() === tag) last.append(text);
    else {
      const node = document.createElement(tag);
      node.append(text);
      place.append(node);
    }
  };
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j]) put("span", (i++, b[j++]));
    else if (i < a.length && (j >= b.length || most[i + 1][j] >= most[i][j + 1])) put("del", a[i++]);
    else put("ins", b[j++]);
  }
  return place;
}

const isChanged = (it) => (it.type === "radio" ? it.checked !== it.defaultChecked : it.value !== it.defaultValue);

function edited() {
  for (const row of form.querySelectorAll("[data-arg]")) {
    const fields = [...row.querySelectorAll("[name^='arg.']")], was = row.querySelector("[data-was]");
    if (!was) continue;
    was.hidden = !fields.some(isChanged);
    const it = fields[0];
    if (!was.hidden && it.type !== "radio") was.querySelector("[data-diff]").replaceChildren(difference(it.defaultValue, it.value));
  }
}

function editor() {
  form.addEventListener("click", (event) => {
    const row = event.target.closest("[data-putback]")?.closest("[data-arg]");
    if (!row) return;
    for (const it of row.querySelectorAll("[name^='arg.']")) {
      if (it.type === "radio") it.checked = it.defaultChecked;
      else it.value = it.defaultValue;
    }
    lists();
    edited();
  });
}

// A list of lines as a field for each, with Add and Remove; what is sent is still the lines.

function lists() {
  for (const lines of form.querySelectorAll("[data-items]")) {
    const place = document.createElement("div"), add = button(lines.dataset.add), label = lines.labels[0].textContent.trim();
    const each = () => [...place.querySelectorAll("input")];
    const write = () => {
      lines.value = each().map((it) => it.value).join("\n");
      each().forEach((it, at) => {
        it.setAttribute("aria-label", `${label} ${at + 1}`);
        it.nextSibling.setAttribute("aria-label", `${lines.dataset.remove} ${at + 1}`);
      });
      edited();
    };
    const put = (text) => {
      const row = document.createElement("div"), field = document.createElement("input"), remove = button(lines.dataset.remove);
      row.className = "unit";
      field.value = text;
      field.dir = "auto";
      remove.addEventListener("click", () => { row.remove(); write(); (each().at(-1) ?? add).focus(); });
      row.append(field, remove);
      add.before(row);
      return field;
    };
    place.dataset.list = lines.id;
    place.append(add);
    place.addEventListener("input", write);
    add.addEventListener("click", () => { const field = put(""); write(); field.focus(); });
    document.querySelector(`[data-list="${CSS.escape(lines.id)}"]`)?.remove();
    lines.value.split("\n").forEach(put);
    lines.after(place);
    lines.hidden = true;
    write();
  }
}

function button(text) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  return made;
}

// Drafts save themselves while a form is filled in, and when its page is left.

let typed = false;
function keep() {
  if (!typed || form.dataset.sent || !navigator.onLine) return;
  typed = false;
  const body = new URLSearchParams(new FormData(form));
  body.set("intent", "draft");
  fetch(form.action, { method: "POST", body, keepalive: true }).catch(() => { typed = true; });
}

if (form) {
  const refresh = () => { reveal(); choose(); if ("edits" in form.dataset) edited(); };
  form.addEventListener("input", (event) => {
    typed = true;
    refresh();
    const it = event.target;
    if (it.dataset.longest && it.value.length > it.dataset.longest * 0.8) count(it);
    if ("code" in it.dataset && /^\d{6}$/.test(it.value.trim())) form.requestSubmit(form.querySelector("#go"));
  });
  form.addEventListener("click", (event) => {
    const button = event.target.closest("[data-reveal]");
    if (!button) return;
    const field = document.getElementById(button.dataset.reveal), shown = field.type === "text";
    field.type = shown ? "password" : "text";
    button.setAttribute("aria-pressed", String(!shown));
  });
  for (const button of form.querySelectorAll("[data-reveal]")) button.hidden = false;
  if (form.querySelector("[data-choose], [data-nothing]")) chooser();
  if ("edits" in form.dataset) editor();
  if ("drafts" in form.dataset) {
    setInterval(keep, 10000);
    addEventListener("pagehide", keep);
  }
  addEventListener("pageshow", () => { lists(); refresh(); });
  refresh();
}

function count(field) {
  const id = `${field.id}-count`;
  let place = document.getElementById(id);
  if (!place) {
    place = document.createElement("p");
    place.id = id;
    place.className = "hint";
    field.after(place);
  }
  place.textContent = fill(words.count, { n: field.value.length, m: field.dataset.longest });
}
