// The pages work without this script. It adds: local times, a countdown, live updates, dialogs, and one submit only.

const root = document.documentElement;
const words = JSON.parse(document.body.dataset.words ?? "{}");
const SETTLE = 400;
const fill = (text, facts) => text.replace(/\{(\w+)\}/g, (_, name) => facts[name]);

function tell(text) {
  let place = document.getElementById("tell");
  if (!place) {
    place = document.createElement("p");
    place.id = "tell";
    place.className = "aside";
    place.setAttribute("role", "status");
    document.body.append(place);
  }
  place.textContent = text;
}

// Ignore clicks on buttons for a moment after content appears: they were meant for what was there before. The style
// sheet ignores taps before this script is loaded, and in a sheet (popover) that opens.
let settling = 0;
function settle() {
  root.dataset.ready = "soon";
  clearTimeout(settling);
  settling = setTimeout(() => { root.dataset.ready = "yes"; }, SETTLE);
}
settle();
document.addEventListener("settle", settle);
document.addEventListener("click", (event) => {
  if (root.dataset.ready === "yes" || !event.target.closest("main button")) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}, true);

// Times. The server's clock counts, because a reader's clock may be wrong.

const ahead = Date.now() - (Number(document.body.dataset.now) * 1000 || Date.now());
const now = () => Date.now() - ahead;

// English dates in the reader's own variant of English, if the browser names one.
const spelling = root.lang === "en" ? navigator.languages.find((it) => /^en\b/i.test(it)) ?? "en-GB" : root.lang;
const clock = new Intl.DateTimeFormat(spelling, { timeStyle: "short" });
const calendar = new Intl.DateTimeFormat(spelling, { dateStyle: "long", timeStyle: "short" });
const date = new Intl.DateTimeFormat(spelling, { dateStyle: "medium" });
const days = new Intl.RelativeTimeFormat(spelling, { numeric: "auto" });
const zone = clock.resolvedOptions().timeZone.split("/").pop().replaceAll("_", " ");
const midnight = (date) => new Date(date).setHours(0, 0, 0, 0);

// "today 08:15" and "yesterday 17:40"; any other day by its date.
function exact(at, far = calendar) {
  const apart = Math.round((midnight(at) - midnight(now())) / 864e5);
  return Math.abs(apart) < 2 ? `${days.format(apart, "day")} ${clock.format(at)}` : far.format(at);
}

function ago(at, mayBeAhead) {
  const seconds = (now() - at) / 1000;
  if (seconds >= 86400) return exact(at, date);
  if (mayBeAhead && seconds <= -60) return fill(words.in, { time: length(-seconds) });
  return seconds < 60 ? words.now : fill(words.ago, { time: length(seconds - seconds % 60) });
}

// Show all times in the local zone. Name the zone only with exact times: in the details, and in the sheet of the deadline.
function localise() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    time.title ||= time.textContent;
    const said = "ago" in time.dataset ? ago(at, time.dataset.ago) : exact(at);
    const text = time.closest("details, [popover]") ? fill(words.zone, { time: said, zone }) : said;
    if (time.textContent !== text) time.textContent = text;
  }
}

function length(seconds) {
  const d = Math.floor(seconds / 86400), h = Math.floor(seconds / 3600) % 24, m = Math.floor(seconds / 60) % 60;
  const whole = words.d[new Intl.PluralRules(root.lang).select(d)] ?? words.d.other ?? words.d;
  if (d) return fill(h ? words.dh : whole, { d, h, n: d });
  if (h) return fill(m ? words.hm : words.h, { h, m });
  return m > 1 || seconds === 60 ? fill(words.m, { m }) : fill(words.s, { s: Math.max(Math.floor(seconds), 0) });
}

const told = new Set();
function tick() {
  localise();
  poll();
  const pill = document.querySelector("[data-until]");
  if (pill) {
    const left = Number(pill.dataset.until) - now() / 1000;
    if (left > 0) {
      const tells = left < 3600 || pill.dataset.then === "approve";
      pill.firstElementChild.textContent = fill(tells ? words[`left.${pill.dataset.then}`] : words.left, { time: length(left) });
      pill.classList.toggle("soon", tells && left >= 300);
      pill.classList.toggle("bad", left < 300);
      for (const minutes of [10, 5, 1]) {
        if (left < minutes * 60 && left > minutes * 60 - 30 && !told.has(minutes)) {
          told.add(minutes);
          tell(pill.textContent);
        }
      }
    } else refresh();
  }
  const held = document.querySelector("[data-held]");
  if (held) {
    const left = Math.ceil(Number(held.dataset.held) - now() / 1000);
    const count = held.querySelector("[data-left]");
    if (count && left >= 0) count.textContent = left;
    if (left < 0) refresh();
  }
}

// The decision bar sticks to the screen unless it is higher than a third of it (small screen or large text).
function measure() {
  const bar = document.querySelector(".decide");
  if (!bar) return;
  root.classList.toggle("still", bar.offsetHeight > innerHeight / 3);
  root.style.setProperty("--bar", root.classList.contains("still") ? "0px" : `${bar.offsetHeight}px`);
}

// Live updates: the server sends an event when the case changes, and the page is fetched again.

// An event during a fetch, or right after one, leads to one more fetch later: no other event may follow it (throttling).
let refreshing = false, lastRefresh = 0, later = 0;
async function refresh() {
  const wait = refreshing ? 300 : lastRefresh + 900 - Date.now();
  if (wait > 0) {
    later ||= setTimeout(() => { later = 0; refresh(); }, wait);
    return;
  }
  refreshing = true;
  lastRefresh = Date.now();
  // The page after a POST has the address of the form (/respond, /undo), which cannot be fetched with GET.
  const live = document.body.dataset.live, here = /\/(respond|undo)$/.test(location.pathname) && live;
  // Without a connection, the next event or the reader's return to the page tries again.
  const html = await fetch(here ? live.replace("/live?", "?") : location.href, { headers: { Accept: "text/html" }, cache: "no-store" })
    .then((answer) => answer.ok && answer.text()).catch(() => "");
  refreshing = false;
  if (html) swap(new DOMParser().parseFromString(html, "text/html"));
}

function swap(fresh) {
  const was = document.getElementById("state"), is = fresh.getElementById("state");
  if (!was || !is) return;
  const open = document.getElementById("answer"), stays = fresh.getElementById("answer");
  if (open && stays) {
    if (open.dataset.version !== stays.dataset.version) return changed(isTouched(open));
    const hasFocus = was.contains(document.activeElement);
    was.replaceWith(document.adoptNode(is));
    if (hasFocus) is.querySelector("button")?.focus();
    tick();
    return;
  }
  document.querySelector(".top").replaceWith(document.adoptNode(fresh.querySelector(".top")));
  if (open && isTouched(open)) return instead(words.over, words.see, () => location.assign(location.href));
  document.title = fresh.title;
  const main = document.querySelector("main"), next = fresh.querySelector("main");
  if (main.textContent !== next.textContent) main.replaceWith(document.adoptNode(next));
  document.body.dataset.live = fresh.body.dataset.live ?? "";
  arrange();
  tell(document.querySelector("h1")?.textContent ?? "");
}

const isTouched = (form) => [...form.elements].some((it) => (it.defaultValue ?? it.value) !== it.value);

// Replace the decision bar by a message and one button. Typed text stays on the page, so that it can be copied.
function instead(text, label, then) {
  const bar = document.getElementById("decide");
  if (bar.querySelector("[role=alert]")) return;
  const note = document.createElement("p"), button = document.createElement("button");
  note.setAttribute("role", "alert");
  note.className = "banner warn";
  note.textContent = text;
  button.type = "button";
  button.className = "go";
  button.textContent = label;
  button.addEventListener("click", then);
  const row = document.createElement("div");
  row.className = "buttons";
  row.append(button);
  bar.replaceChildren(note, row);
  measure();
  settle();
}

// The agent changed its request: load the page again, and block its buttons until the person has looked at it.
const CHANGED = `changed ${location.pathname}`;
function changed(touched) {
  const again = () => {
    sessionStorage.setItem(CHANGED, "yes");
    location.reload();
  };
  if (touched) instead(words.changed, words.see, again);
  else again();
}
function lookAgain() {
  const form = document.getElementById("answer"), bar = document.getElementById("decide");
  if (!bar || !sessionStorage.getItem(CHANGED)) return;
  form.dataset.unseen = words.changed;
  const kept = [...bar.childNodes];
  instead(words.changed, words.look, () => {
    sessionStorage.removeItem(CHANGED);
    delete form.dataset.unseen;
    bar.replaceChildren(...kept);
    arrange();
  });
}

// Polling: if no event arrives (a proxy, too many streams), the page is fetched every 15 seconds.
let stream = null, heard = false, polled = Date.now();
function poll() {
  if (heard || !document.body.dataset.live || document.hidden || Date.now() - polled < 15000) return;
  polled = Date.now();
  refresh();
}

function follow() {
  const url = document.body.dataset.live;
  if (!url) { stream?.close(); stream = null; return; }
  if (stream?.url === new URL(url, location.href).href) return;
  stream?.close();
  stream = new EventSource(url);
  let first = true;
  stream.addEventListener("error", () => { heard = false; });
  stream.addEventListener("state", (event) => {
    heard = true;
    const known = document.body.dataset.state;
    const { state, version } = JSON.parse(event.data);
    document.body.dataset.state = `${state} ${version}`;
    if (!first || known !== document.body.dataset.state) refresh();
    first = false;
  });
}
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible" && document.body.dataset.live) refresh();
});

// Submit a form once, and show that it is being sent.

document.addEventListener("submit", (event) => {
  const form = event.target, button = event.submitter;
  if (form.dataset.unseen || !navigator.onLine) {
    event.preventDefault();
    form.dataset.pressed = "yes";
    return say(form, form.dataset.unseen ?? words.offline);
  }
  if (button?.matches("[aria-disabled=true]")) {
    event.preventDefault();
    return say(form, button.dataset.why ?? button.textContent);
  }
  if (form.dataset.sent) return event.preventDefault();
  form.dataset.sent = "yes";
  if (!button) return;
  button.dataset.plain = button.textContent;
  button.setAttribute("aria-busy", "true");
  button.textContent = words.sending;
  tell(words.sending);
  form.dataset.timer = setTimeout(() => say(form, words.still), 8000);
});
addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  for (const form of document.forms) {
    delete form.dataset.sent;
    clearTimeout(form.dataset.timer);
  }
  for (const button of document.querySelectorAll("[aria-busy]")) {
    button.removeAttribute("aria-busy");
    button.textContent = button.dataset.plain;
  }
  refresh();
});

function say(form, text) {
  const place = form.querySelector(".who p:last-child");
  if (!place) return tell(text);
  place.dataset.plain ??= place.textContent;
  place.textContent = text;
  place.setAttribute("role", "status");
}

// Offline, the bar says so; online again, it asks for another press if one was lost.
function connection() {
  const form = document.getElementById("answer"), bar = document.getElementById("decide");
  if (!bar) return;
  const wasOff = bar.classList.contains("off");
  if (bar.classList.toggle("off", !navigator.onLine)) return say(form, words.offline);
  const plain = form.querySelector(".who p:last-child")?.dataset.plain;
  if (wasOff) say(form, form.dataset.pressed ? words.online : plain ?? "");
  delete form.dataset.pressed;
}
addEventListener("offline", connection);
addEventListener("online", connection);

// Save a draft every 10 seconds while the reader fills in or edits a form, and when they leave the page.

let typed = null;
function keep() {
  const form = typed;
  if (!form || form.dataset.sent || !navigator.onLine) return;
  typed = null;
  const body = new URLSearchParams(new FormData(form));
  body.set("intent", "draft");
  fetch(form.action, { method: "POST", body, keepalive: true, redirect: "manual" }).catch(() => { typed = form; });
}
document.addEventListener("input", (event) => {
  if ("drafts" in (event.target.form?.dataset ?? {})) typed = event.target.form;
});
setInterval(keep, 10000);
addEventListener("pagehide", keep);

// A pencil puts the field of its value into the row. The script for that is loaded at the first press.

document.addEventListener("click", async (event) => {
  const pencil = event.target.closest("[data-pencil]"), editor = pencil?.closest("[data-editor]")?.dataset.editor;
  if (!editor || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  try {
    await (await import(editor)).open(pencil);
  } catch {
    location.assign(pencil.href);
  }
});

// The second step as a dialog.

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-second]");
  const dialog = document.getElementById("second");
  if (opener && dialog && !opener.matches("[aria-disabled=true]")) {
    event.preventDefault();
    document.querySelector("[popover]:popover-open")?.hidePopover();
    dialog.querySelector("[data-second-fields]").disabled = false;
    dialog.addEventListener("close", () => { dialog.querySelector("[data-second-fields]").disabled = true; }, { once: true });
    dialog.showModal();
    dialog.querySelector("h2").focus();
    settle();
  }
  const box = event.target === dialog && dialog.getBoundingClientRect();
  const beside = box && (event.clientY < box.top || event.clientY > box.bottom || event.clientX < box.left || event.clientX > box.right);
  if (event.target.closest("[data-close]") || beside) dialog?.close();
  const link = event.target.closest("[data-link]");
  if (link) copy(link);
  if (event.target.closest("[data-print]")) print();
});

// What is copied: the address of a page, a text that is on it, or a value whole, each of its characters as it is.
async function copy(link) {
  const { link: at, text, done } = link.dataset, address = new URL(at, location.href).href;
  await navigator.clipboard.writeText("value" in link.dataset ? await (await fetch(at)).text() : text ?? address);
  tell(link.textContent = done);
}

// A search hides the items, or the arguments, that do not have the words. Folded ones are opened for it.
document.addEventListener("input", ({ target: it }) => {
  const of = it.dataset.search, wanted = it.value.toLowerCase();
  for (const row of of ? it.closest(".card").querySelectorAll(of) : []) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
    if (wanted && of !== ".item") row.closest("details")?.setAttribute("open", "");
  }
});

function arrange() {
  tick();
  measure();
  follow();
  settle();
  const first = document.querySelector(".risky"), link = document.querySelector("[data-first]");
  if (first && link) {
    first.id = "risky";
    link.hidden = false;
  }
}

arrange();
lookAgain();
if (!navigator.onLine) connection();
setInterval(tick, 1000);
addEventListener("resize", measure);
for (const it of document.querySelectorAll("[data-print], [data-link], [data-search]")) it.hidden = "link" in it.dataset && !navigator.clipboard;
document.querySelector("[popover]:has([data-fault])")?.showPopover();
if (![...document.querySelectorAll("[autofocus]")].some((it) => it.checkVisibility())) document.getElementById("problems")?.focus();
