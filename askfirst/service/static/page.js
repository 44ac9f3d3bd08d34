// The pages work without this. With it: times in the reader's zone, a live countdown and state, sheets, one sending.

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

// A tap that comes as soon as something appears was meant for what stood there before.
let settling = 0;
function settle() {
  root.dataset.ready = "soon";
  clearTimeout(settling);
  settling = setTimeout(() => { root.dataset.ready = "yes"; }, SETTLE);
}
settle();
document.addEventListener("click", (event) => {
  if (root.dataset.ready === "yes" || !event.target.closest("main button")) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}, true);
document.addEventListener("toggle", (event) => {
  if (event.target.matches("[popover]") && event.newState === "open") settle();
}, true);

// Times.

// English as the reader spells it, if they do.
const spelling = root.lang === "en" ? navigator.languages.find((it) => /^en\b/i.test(it)) ?? "en-GB" : root.lang;
const clock = new Intl.DateTimeFormat(spelling, {
  day: "numeric", month: "long", year: "numeric", hour: "numeric", minute: "2-digit", timeZoneName: "short",
});

function localise(within) {
  for (const time of within.querySelectorAll("time[datetime]")) {
    const date = new Date(time.dateTime);
    if (Number.isNaN(date.getTime()) || time.title) continue;
    time.title = time.textContent;
    time.textContent = clock.format(date);
  }
}

function length(seconds) {
  const d = Math.floor(seconds / 86400), h = Math.floor(seconds / 3600) % 24, m = Math.floor(seconds / 60) % 60;
  if (d) return fill(h ? words.dh : words.d, { d, h, n: d });
  if (h) return fill(m ? words.hm : words.h, { h, m });
  return m > 1 ? fill(words.m, { m }) : fill(words.s, { s: Math.max(Math.floor(seconds), 0) });
}

const told = new Set();
function tick() {
  const pill = document.querySelector("[data-until]");
  if (pill) {
    const left = Number(pill.dataset.until) - Date.now() / 1000;
    if (left > 0) {
      const says = left < 3600 || pill.dataset.then === "approve" ? words[`left.${pill.dataset.then}`] : words.left;
      pill.textContent = fill(says, { time: length(left) });
      pill.classList.toggle("soon", left < 3600 && left >= 300);
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
    const left = Math.ceil(Number(held.dataset.held) - Date.now() / 1000);
    const count = held.querySelector("[data-left]");
    if (count && left >= 0) count.textContent = left;
    if (left < 0) refresh();
  }
}

// The bar stands still where it would take too much of a small screen, or of one with large text.
function measure() {
  const bar = document.querySelector(".decide");
  if (!bar) return;
  root.classList.toggle("still", bar.offsetHeight > innerHeight / 3);
  root.style.setProperty("--bar", root.classList.contains("still") ? "0px" : `${bar.offsetHeight}px`);
}

// Live: the server says that something changed, and the page is fetched again.

let refreshing = false, lastRefresh = 0;
async function refresh() {
  if (refreshing || Date.now() - lastRefresh < 900) return;
  refreshing = true;
  lastRefresh = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
    if (answer.ok) swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    // Away for a while: the next event, or coming back to the page, tries again.
  } finally {
    refreshing = false;
  }
}

function swap(fresh) {
  const was = document.getElementById("state"), is = fresh.getElementById("state");
  if (!was || !is) return;
  const open = document.getElementById("answer"), stays = fresh.getElementById("answer");
  if (open && stays) {
    if (open.dataset.version !== stays.dataset.version) return changed(fresh);
    was.replaceWith(document.adoptNode(is));
    tick();
    return;
  }
  const touched = open && [...open.elements].some((it) => it.value !== undefined && it.defaultValue !== undefined && it.value !== it.defaultValue);
  if (touched) return over(is);
  document.title = fresh.title;
  was.replaceWith(document.adoptNode(is));
  const main = document.querySelector("main"), next = fresh.querySelector("main");
  if (main.textContent !== next.textContent) main.replaceWith(document.adoptNode(next));
  document.body.dataset.live = fresh.body.dataset.live ?? "";
  arrange();
  tell(document.querySelector("h1")?.textContent ?? "");
}

// What was typed stays where it can be copied; the decision cannot be sent any more.
function over(state) {
  document.getElementById("state").replaceWith(document.adoptNode(state));
  const bar = document.getElementById("decide");
  const note = document.createElement("p"), link = document.createElement("a");
  note.setAttribute("role", "status");
  note.textContent = words.over;
  link.href = location.href;
  link.className = "button go";
  link.textContent = words.look;
  bar.replaceChildren(note, link);
}

function changed(fresh) {
  const bar = document.getElementById("decide");
  if (bar.dataset.changed) return;
  bar.dataset.changed = "yes";
  const note = document.createElement("p"), button = document.createElement("button");
  note.setAttribute("role", "alert");
  note.className = "banner warn";
  note.textContent = words.changed;
  button.type = "button";
  button.className = "button";
  button.textContent = words.look;
  button.addEventListener("click", () => location.reload());
  bar.replaceChildren(note, button);
  settle();
}

let stream = null;
function follow() {
  const url = document.body.dataset.live;
  if (!url) { stream?.close(); stream = null; return; }
  if (stream?.url === new URL(url, location.href).href) return;
  stream?.close();
  stream = new EventSource(url);
  let first = true;
  stream.addEventListener("state", (event) => {
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

// Sending: once, and it shows.

document.addEventListener("submit", (event) => {
  const form = event.target, button = event.submitter;
  if (!navigator.onLine) {
    event.preventDefault();
    return say(form, words.offline);
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
  for (const form of document.forms) delete form.dataset.sent;
  for (const button of document.querySelectorAll("[aria-busy]")) {
    button.removeAttribute("aria-busy");
    button.textContent = button.dataset.plain;
  }
  refresh();
});

function say(form, text) {
  const place = form.querySelector(".who p:last-child") ?? form;
  place.textContent = text;
  place.setAttribute("role", "status");
}

// The second step as a dialog over the page.

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
  if (event.target.closest("[data-close]") || event.target === dialog) dialog?.close();
});

function arrange() {
  localise(document);
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
setInterval(tick, 1000);
addEventListener("resize", measure);
document.getElementById("problems")?.focus();
