// Fields: conditions, counters, and the number of chosen items. The server checks all of it again.

const words = JSON.parse(document.body.dataset.words ?? "{}");
const fill = (text, facts) => text.replace(/\{(\w+)\}/g, (_, name) => facts[name]);
const form = document.getElementById("answer");

// Show or hide fields with a condition while the reader types.

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

// Items to choose: their number, "all" and "none".

function choose() {
  const boxes = [...form.querySelectorAll("[data-choose] input[type=checkbox]")];
  const go = form.querySelector("#go");
  const list = form.querySelector("[data-kept]")?.dataset, kept = Number(list?.kept ?? 0);
  const picked = boxes.filter((box) => box.checked).length + kept;
  const head = form.querySelector("[data-choose] [data-count]");
  if (head && boxes.length) head.textContent = fill(head.dataset.count, { n: picked });
  if (!go?.dataset.nothing && !go?.dataset.title) return;
  const chosen = [...form.querySelectorAll(".rows input:checked")], any = chosen.length + kept;
  go.dataset.plain ??= go.textContent;
  let says = any || !go.dataset.nothing ? go.dataset.plain : go.dataset.nothing;
  if (any && go.dataset.some) says = fill(picked === Number(list.of) ? go.dataset.every : go.dataset.some, { n: picked });
  if (chosen.length === 1 && go.dataset.title && (!kept || !boxes.length)) {
    const title = chosen[0].parentNode.querySelector(".title").textContent.trim();
    says = fill(go.dataset.title, { title: title.length > 32 ? `${title.slice(0, 31)}…` : title });
  }
  if (go.dataset.nothing) go.setAttribute("aria-disabled", String(!any));
  go.textContent = says;
}

function chooser() {
  for (const each of form.querySelectorAll("[data-all]")) each.hidden = false;
  for (const each of form.querySelectorAll("[data-plain-only]")) each.hidden = true;
  form.addEventListener("click", (event) => {
    const pick = event.target.closest("[data-pick]")?.dataset.pick;
    if (!pick) return;
    for (const box of form.querySelectorAll("[data-choose] input[type=checkbox]")) box.checked = pick === "all";
    choose();
  });
}

if (form) {
  const refresh = () => { reveal(); choose(); };
  form.addEventListener("input", (event) => {
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
  if (form.querySelector("[data-choose], [data-nothing], [data-title]")) chooser();
  const again = form.querySelector("[data-again]");
  if (again) wait(again);
  addEventListener("pageshow", refresh);
  refresh();
}

// A code can be sent again after half a minute.

function wait(again) {
  const plain = again.textContent;
  again.setAttribute("aria-disabled", "true");
  again.textContent = fill(again.dataset.again, { s: 30 });
  setTimeout(() => { again.removeAttribute("aria-disabled"); again.textContent = plain; }, 30000);
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
